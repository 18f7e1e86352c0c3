"""The house rules a machine can check: layers, cycles, closed doors, method names, budgets.

`violations(package, methods)` lists what breaks them, one line each; an empty list is a clean package.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

# Imports point down only; neighbours on one layer do not import each other. Type-only imports count.
LAYERS = """
    errors | sampling_params counts | types | config | _native | ops text | models kv sampling
    | grammar draft verify | engine metrics | llm | __init__ | server bench train | cli | __main__
"""
LAYER_OF = {name: depth for depth, layer in enumerate(LAYERS.split("|")) for name in layer.split()}

DOORS = {  # dotted name -> the only package that may use it
    "specserve._native": "ops",
    "ctypes": "ops",
    "fastapi": "server",
    "starlette": "server",
    "uvicorn": "server",
    "os.environ": "config",
    "os.getenv": "config",
    "sys.argv": "cli",
}
METHOD_HOMES = ("draft", "models.heads", "train")
OTHER_MEANINGS = {  # OpenAI's requests have fields of these names
    ("server", "suffix"),
    ("server", "prediction"),
    ("engine", "prediction"),
    ("sampling_params", "prediction"),
}

MAX_FILE, MAX_FUNCTION, MEAN_FUNCTION = 400, 60, 15  # lines


def violations(package: Path, methods: Collection[str]) -> list[str]:
    trees = {_name(path, package): ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    graph = {name: _targets(name, tree, trees) for name, tree in trees.items()}
    found = [line for name, targets in graph.items() for line in _upward(name, targets)]
    found += [line for name, tree in trees.items() for line in _doors(name, tree)]
    found += [line for name, tree in trees.items() for line in _methods(name, tree, methods)]
    found += [f"{p.name}: over {MAX_FILE} lines" for p in package.rglob("*.py") if len(_lines(p)) > MAX_FILE]
    found += _functions(trees)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        found.append(f"cycle: {' -> '.join(cycle.args[1])}")
    return found


def _name(path: Path, package: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _imports(tree: ast.AST) -> Iterator[str]:
    """Dotted name of everything imported, wherever the import stands; a relative one begins with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def _targets(name: str, tree: ast.AST, known: Collection[str]) -> set[str]:
    """The package's modules that module `name` imports: for each import the longest known prefix."""
    targets = set()
    for dotted in _imports(tree):
        head, *rest = dotted.split(".")
        if head == "specserve":
            prefixes = (".".join(rest[:end]) for end in range(len(rest), 0, -1))
            targets.add(next((p for p in prefixes if p in known or p in LAYER_OF), "__init__"))
        elif not head:
            targets.add(dotted)
    return targets - {name}


def _upward(name: str, targets: Collection[str]) -> Iterator[str]:
    home = name.split(".")[0]
    if home not in LAYER_OF:
        yield f"{name}: {home} has no layer"
        return
    for target in targets:
        other = target.split(".")[0]
        if not other:
            yield f"{name}: relative import {target}"
        elif other != home and LAYER_OF.get(other, len(LAYER_OF)) >= LAYER_OF[home]:
            yield f"{name}: imports {target}, which is not below it"


def _doors(name: str, tree: ast.AST) -> Iterator[str]:
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    used = [*_imports(tree), *(f"{a.value.id}.{a.attr}" for a in attributes if isinstance(a.value, ast.Name))]
    for door, owner in DOORS.items():
        if name.split(".")[0] != owner and any(f"{u}.".startswith(f"{door}.") for u in used):
            yield f"{name}: only {owner} may use {door}"


def _methods(name: str, tree: ast.AST, methods: Collection[str]) -> Iterator[str]:
    if any(f"{name}.".startswith(f"{home}.") for home in METHOD_HOMES):
        return
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    for method in words & set(methods):
        if (name.split(".")[0], method) not in OTHER_MEANINGS:
            yield f"{name}: names the method {method!r}"


def _functions(trees: dict[str, ast.Module]) -> Iterator[str]:
    lengths = [
        (f"{name}.{node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    yield from (f"{where}: over {MAX_FUNCTION} lines" for where, lines in lengths if lines > MAX_FUNCTION)
    mean = sum(lines for _, lines in lengths) / max(len(lengths), 1)
    if mean >= MEAN_FUNCTION:
        yield f"functions have {mean:.1f} lines on average"
