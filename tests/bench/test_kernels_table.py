"""What people see: the steps, the ops, and what must be known to read them."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from specserve.bench.kernels_figures import document, weight_classes
from specserve.bench.kernels_steps import Measured
from specserve.bench.kernels_table import WIDTH, print_tables, remarks
from tests.bench.test_kernels_figures import measured, ops


def figures(runner: str = "native") -> dict[str, Any]:
    found = measured()
    if runner == "native":
        made = {**document(found, ops()), **weight_classes(ops())}
    else:
        nothing = Measured(found.steps, {case: [] for case in found.steps})
        made = {**document(nothing, []), "weight_class": "float32"}
    return {**made, "runner": runner, "config": {"context_len": 4}}


def printed(made: dict[str, Any]) -> str:
    text = io.StringIO()
    print_tables(made, Console(file=text, width=WIDTH))
    return text.getvalue()


def test_steps_and_ops_have_their_rows() -> None:
    text = printed(figures())
    assert "Steps after 4 tokens, float32+int4" in text
    for words in ("1 x linear 8x8 int4/8", "1 x gather", "1 x head 8x8 float32", "prompt 10", "native ms"):
        assert words in text


def test_nothing_is_cut_off_where_the_output_is_no_terminal() -> None:
    made = figures()
    made["prompt"] |= {
        "num_tokens": 131072,
        "target_ms": 123456.0,
        "step_ms": 123456.0,
        "native_ms": 123456.0,
    }
    assert "…" not in printed(made)


def test_an_op_without_bytes_has_no_rate_to_show() -> None:
    _, _, rates, _ = printed(figures()).split("Ops of all layers")
    assert "gather" not in rates


def test_a_machine_that_changed_its_mood_is_said() -> None:
    assert any("not steady" in line for line in remarks(figures()))
    steady = figures() | {"read_gb_per_s": 30.0, "read_gb_per_s_spread": [29.0, 31.0]}
    assert not any("not steady" in line for line in remarks(steady))


def test_an_eager_runner_is_said() -> None:
    text = printed(figures("eager"))
    assert "Eager: PyTorch ops, no native kernels." in text
    assert "eager ms" in text
    assert "Ops of" not in text
