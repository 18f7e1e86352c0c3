"""The figures of `bench kernels` for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

NOTES = (
    "Medians; ± is half the distance of the quartiles. target: from the plan to the logits; host: the step",
    "less the network's ops; GB/s, GMAC/s, shares: over the whole step; times: target over the first one's.",
)
UNSTEADY = 0.1  # of the read bandwidth between its quartiles

Figures = Mapping[str, Any]


def print_tables(document: Figures, console: Console) -> None:
    for part in (_steps(document), *_ops(document), *_exactness(document)):
        console.print(part)
    for line in remarks(document):
        console.print(line, highlight=False)


def remarks(document: Figures) -> Iterator[str]:
    """What must be known to read the tables."""
    yield from NOTES
    if document["runner"] == "eager":
        yield "Eager: PyTorch ops, no native kernels. Only the times of steps can be told."
        return
    peaks = ", ".join(f"{kind} {rate:.0f}" for kind, rate in document["multiply_gmac_per_s"].items())
    low, high = document["read_gb_per_s_spread"]
    read = document["read_gb_per_s"]
    yield f"Read bandwidth {read:.1f} GB/s, quartiles {low:.1f} {high:.1f}; multiply peaks, GMAC/s: {peaks}."
    if high - low > UNSTEADY * read:
        yield "The machine was not steady: the read bandwidth moved by more than a tenth. Measure again."


def _steps(document: Figures) -> Table:
    table = Table(
        title=f"Steps after {document['config']['context_len']} tokens, {document['weight_class']}",
        box=box.SIMPLE,
    )
    titles = ["rows", "target ms", "±", "step ms", f"{document['runner']} ms", "host ms", "GB/s", "GMAC/s"]
    for title in [*titles, "roofline", "multiply", "times"]:
        table.add_column(title, justify="right", no_wrap=True)
    steps = document["steps"]
    first = next(iter(document["rows"].values()))
    for name, figures in steps.items():
        table.add_row(name, *_step_cells(figures), f"{figures['target_ms'] / first:.2f}")
    if (prompt := document["prompt"]) is not None:
        table.add_section()
        table.add_row(f"prompt {prompt['num_tokens']}", *_step_cells(prompt), "")
    return table


def _step_cells(figures: Figures) -> list[str]:
    low, high = figures["target_ms_spread"]
    return [
        _number(figures["target_ms"]),
        _number((high - low) / 2),
        _number(figures["step_ms"]),
        _number(figures["native_ms" if "native_ms" in figures else "eager_ms"]),
        f"{figures['host_ms']:.2f}",
        _number(figures["gb_per_s"]),
        _number(figures["gmac_per_s"]),
        _percent(figures["roofline_share"]),
        _percent(figures["multiply_share"]),
    ]


def _ops(document: Figures) -> Iterator[Table]:
    if not document["ops"]:
        return
    for title, key in (("ms", "ms"), ("GB/s", "gb_per_s"), ("GMAC/s", "gmac_per_s")):
        yield _op_table(document["ops"], f"Ops of all layers: {title} by rows", key)


def _op_table(ops: list[Figures], title: str, key: str) -> Table:
    table = Table(title=title, box=box.SIMPLE)
    table.add_column("op")
    has_prompt = "prompt" in ops[0]
    for name in [*ops[0]["rows"], *(["prompt"] if has_prompt else [])]:
        table.add_column(name, justify="right")
    for op in ops:
        cells = [*op["rows"].values(), *([op["prompt"]] if has_prompt else [])]
        if any(figures[key] for figures in cells):
            table.add_row(_label(op), *(_number(figures[key]) for figures in cells))
    return table


def _exactness(document: Figures) -> Iterator[Table]:
    if not document["exactness"]:
        return
    table = Table(title="Matrices alone: what the fixed order of additions costs", box=box.SIMPLE)
    for title in ("class", "rows", "exact ms", "several sums ms", "cost", "quartiles"):
        table.add_column(title, justify="left" if title == "class" else "right")
    for line in document["exactness"]:
        low, high = line["cost_spread"]
        table.add_row(
            line["weight_class"],
            str(line["rows"]),
            _number(line["exact_ms"]),
            _number(line["k_lanes_ms"]),
            f"{100 * line['cost']:+.1f} %",
            f"{100 * low:+.1f} {100 * high:+.1f}",
        )
    yield table


def _label(op: Figures) -> str:
    """`30 x qkv 960x576 int4/16`: how many, outputs x inputs, class / bits of the inputs."""
    words = [f"{op['num_ops']} x {op['op']}"]
    if op["outputs"] is not None:
        words.append(f"{op['outputs']}x{op['inputs']}")
        words.append(op["weight_class"] + (f"/{op['activation_bits']}" if op["activation_bits"] else ""))
    if op["window"] is not None:
        words.append(f"window {op['window']}")
    return " ".join(words)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
