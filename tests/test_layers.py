"""The package keeps its own rules, and the checker notices when a package does not."""

from __future__ import annotations

from pathlib import Path

import pytest

import specserve
from specserve.draft import DRAFTERS
from tests.support.layers import violations

METHODS = ("lookup", "suffix")  # in the synthetic trees below
CLEAN = {
    "types.py": "from specserve.errors import UserError",
    "errors.py": "class UserError(ValueError): ...",
    "config/__init__.py": "import os\nhome = os.environ['HOME']",
    "ops/__init__.py": "import ctypes\nfrom specserve.ops.linear import reference\nimport specserve._native",
    "ops/linear.py": "from specserve.types import Rows",
    "draft/lookup.py": "name = 'lookup'",
    "models/heads/lookup.py": "name = 'lookup'",
    "engine/engine.py": "from specserve.draft.lookup import name\nfrom specserve import ops",
    "server/app.py": "import uvicorn\nfrom specserve.engine import engine\nfield = 'suffix'",
    "cli.py": "import sys\nargv = sys.argv\nfrom specserve.server import app",
    "__init__.py": "from specserve.types import Rows",
}


def write(package: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


def test_the_package_keeps_its_rules() -> None:
    assert violations(Path(specserve.__file__).parent, DRAFTERS) == []


def test_public_names_are_these() -> None:
    assert sorted(specserve.__all__) == ["LLM", "SamplingParams", "__version__"]


def test_a_clean_tree_passes(tmp_path: Path) -> None:
    assert violations(write(tmp_path, CLEAN), METHODS) == []


@pytest.mark.parametrize(
    ("file", "text", "finding"),
    [
        ("types.py", "import specserve.config", "types: imports config, which is not below it"),
        ("draft/a.py", "from specserve.verify import greedy", "draft.a: imports verify"),
        ("verify/a.py", "import specserve.draft.lookup", "verify.a: imports draft.lookup"),
        ("text/a.py", "from specserve import ops", "text.a: imports ops"),
        ("kv/a.py", "def f():\n    from specserve.engine import engine", "kv.a: imports engine.engine"),
        ("kv/a.py", "if TYPE_CHECKING:\n    from specserve.cli import X", "kv.a: imports cli"),
        ("engine/a.py", "from specserve import LLM", "engine.a: imports __init__"),
        ("engine/a.py", "from . import engine", "engine.a: relative import"),
        ("helpers/a.py", "", "helpers.a: helpers has no layer"),
        ("ops/linear.py", "import specserve.ops", "cycle: "),
        ("kv/a.py", "from specserve._native import x", "kv.a: only ops may use specserve._native"),
        ("kv/a.py", "import ctypes", "kv.a: only ops may use ctypes"),
        ("cli.py", "from fastapi.routing import R", "cli: only server may use fastapi"),
        ("bench/a.py", "import starlette.requests", "bench.a: only server may use starlette"),
        ("cli.py", "import uvicorn", "cli: only server may use uvicorn"),
        ("kv/a.py", "import os\nx = os.environ.get('A')", "kv.a: only config may use os.environ"),
        ("kv/a.py", "from os import environ", "kv.a: only config may use os.environ"),
        ("kv/a.py", "import os\nx = os.getenv('A')", "kv.a: only config may use os.getenv"),
        ("server/a.py", "import sys\nx = sys.argv[1:]", "server.a: only cli may use sys.argv"),
        ("config/a.py", "x = {'method': 'lookup'}", "config.a: names the method 'lookup'"),
        ("models/base.py", "x = 'lookup'", "models.base: names the method 'lookup'"),
        ("cli.py", "x = 'suffix'", "cli: names the method 'suffix'"),
        ("kv/a.py", "x = 1\n" * 401, "a.py: over 400 lines"),
        ("kv/a.py", "def f():\n" + "    x = 1\n" * 60, "kv.a.f: over 60 lines"),
        ("kv/a.py", "class A:\n  async def f():\n" + "    x = 1\n" * 14, "functions have 15.0 lines"),
    ],
)
def test_a_broken_rule_is_found(tmp_path: Path, file: str, text: str, finding: str) -> None:
    found = violations(write(tmp_path, {**CLEAN, file: text}), METHODS)
    assert any(line.startswith(finding) for line in found), found
