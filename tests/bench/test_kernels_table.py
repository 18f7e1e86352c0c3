"""What people see: the steps, the ops, and what must be known to read them."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from specserve.bench.kernels_figures import document, weight_classes
from specserve.bench.kernels_order import cost_figures
from specserve.bench.kernels_steps import Measured
from specserve.bench.kernels_table import print_tables, remarks
from specserve.bench.report import WIDTH
from tests.bench.test_kernels_figures import measured, ops


def figures(runner: str = "native") -> dict[str, Any]:
    found = measured()
    if runner == "native":
        made = {**document(found, ops()), **weight_classes(ops())}
    else:
        nothing = Measured(found.steps, {case: [] for case in found.steps})
        made = {**document(nothing, []), "weight_class": "float32"}
    pairs = [{"weight_class": "int4", "rows": 8, **cost_figures([(1.0, 2.0), (3.0, 2.0), (2.5, 2.0)])}]
    exactness = pairs if runner == "native" else []
    return {**made, "exactness": exactness, "runner": runner, "config": {"context_len": 4}}


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


def test_the_cost_of_exactness_is_a_share_with_its_quartiles() -> None:
    [line] = [
        line for line in printed(figures()).splitlines() if "int4" in line and "8  " in line and "%" in line
    ]
    assert line.split() == ["int4", "8", "2500", "2000", "+25.0", "%", "-12.5", "+37.5"]


def test_a_machine_that_changed_its_mood_is_said() -> None:
    assert any("not steady" in line for line in remarks(figures()))
    steady = figures() | {"read_gb_per_s": 30.0, "read_gb_per_s_spread": [29.0, 31.0]}
    assert not any("not steady" in line for line in remarks(steady))


def test_an_eager_runner_is_said() -> None:
    text = printed(figures("eager"))
    assert "Eager: PyTorch ops, no native kernels." in text
    assert "eager ms" in text
    assert "Ops of" not in text
    assert "fixed order" not in text
