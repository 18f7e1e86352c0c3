"""What exactness costs is measured in pairs, by class, and made of the matrices alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specserve.bench.kernels_order import PAIRS, ROWS, OrderMeter, cost_figures
from specserve.bench.kernels_steps import program_of
from specserve.ops.k_lanes import Products
from tests.support.native import library
from tests.support.tiny import deploy_tiny, write_tiny


def meter(tmp_path: Path, options: dict[str, Any]) -> tuple[OrderMeter, int]:
    """And how many matrices the model has."""
    library()
    program = program_of(deploy_tiny(write_tiny(tmp_path), options).engine)
    assert program is not None
    return OrderMeter(program.pool, program.ops), sum(op.record.kind == "linear" for op in program.ops)


@pytest.mark.parametrize("quantization", ["int4", "int8", None])
def test_every_class_of_the_model_has_its_figures_at_one_row_and_at_eight(
    tmp_path: Path, quantization: str | None
) -> None:
    found, _ = meter(tmp_path, {"quantization": quantization})
    found.measure(keeps=True)
    kind = quantization or "float32"
    assert [(line["weight_class"], line["rows"]) for line in found.figures()] == [(kind, 1), (kind, 8)]
    assert all(line["exact_ms"] > 0.0 and line["k_lanes_ms"] > 0.0 for line in found.figures())


def test_both_ways_take_turns_over_all_matrices_and_a_warm_up_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, num_matrices = meter(tmp_path, {})
    asked: list[tuple[bool, int]] = []

    def measure(self: Products, num_rows: int) -> list[float]:
        is_exact = self is found._exact
        asked.append((is_exact, num_rows))
        return [3.0 if is_exact else 2.0] * num_matrices

    monkeypatch.setattr(Products, "measure", measure)
    found.measure(keeps=False)
    turns = [True, False, False, True] * (PAIRS // 2)
    assert asked == [(is_exact, num_rows) for num_rows in ROWS for is_exact in turns]
    assert not any(found._samples.values())
    found.measure(keeps=True)
    assert found._samples == {
        ("float32", n): [(3.0 * num_matrices, 2.0 * num_matrices)] * PAIRS for n in ROWS
    }


def test_the_cost_is_that_of_the_middle_pair() -> None:
    figures = cost_figures([(0.001, 0.002), (0.003, 0.002), (0.010, 0.008)])
    assert figures["exact_ms"] == pytest.approx(3.0)
    assert figures["k_lanes_ms"] == pytest.approx(2.0)
    assert figures["cost"] == pytest.approx(0.25)
    assert figures["cost_spread"] == pytest.approx([-0.125, 0.375])
