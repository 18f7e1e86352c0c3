"""The measured calls are those of the table, and every one gives a figure."""

from __future__ import annotations

from specserve.bench.sampling import ROWS, calls, make_logits, measure
from specserve.ops import reference_ops


def test_every_call_runs_at_every_number_of_rows() -> None:
    found = measure({"reference": reference_ops()}, 200, 1)
    assert list(found["reference"]) == list(calls(1, 200))
    assert all(len(times) == len(ROWS) and min(times) > 0.0 for times in found["reference"].values())


def test_logits_are_the_same_each_time() -> None:
    assert make_logits(3, 100).equal(make_logits(3, 100))
