"""Penalties entry by entry against their formulas."""

from __future__ import annotations

import torch

from specserve.ops import penalties


def penalized(value: float, count: int, repetition: float, frequency: float, presence: float) -> float:
    """One entry's definition, in float64."""
    value = value / repetition if value > 0 else value * repetition
    return value - frequency * count - (presence if count else 0.0)


def test_every_entry_follows_the_formulas_and_nothing_else_changes() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 9, generator=generator)
    rows, ids = torch.tensor([0, 0, 1, 2, 3, 3]), torch.tensor([1, 8, 1, 0, 4, 5])
    counts = torch.tensor([2, 0, 1, 3, 0, 1])
    repetition, frequency, presence = [1.5, 0.7, 1.0, 2.0], [0.5, -1.0, 0.25, 0.0], [0.0, 1.0, -0.5, 0.3]
    found = penalties.reference(logits.clone(), rows, ids, counts, repetition, frequency, presence)
    expected = logits.double()
    for r, i, c in zip(rows.tolist(), ids.tolist(), counts.tolist(), strict=True):
        expected[r, i] = penalized(float(logits[r, i]), c, repetition[r], frequency[r], presence[r])
    assert torch.allclose(found.double(), expected, rtol=0, atol=1e-6)
    untouched = torch.ones(4, 9, dtype=torch.bool)
    untouched[rows, ids] = False
    assert torch.equal(found[untouched], logits[untouched])


def test_repetition_pushes_positive_and_negative_logits_down() -> None:
    logits = torch.tensor([[2.0, -2.0, 0.0, -torch.inf]])
    rows, ids, counts = torch.zeros(4, dtype=torch.int64), torch.arange(4), torch.ones(4, dtype=torch.int64)
    found = penalties.reference(logits, rows, ids, counts, [2.0], [0.0], [0.0])
    assert found.tolist() == [[1.0, -4.0, 0.0, -torch.inf]]


def test_no_entries_change_nothing() -> None:
    logits, none = torch.randn(2, 3), torch.empty(0, dtype=torch.int64)
    assert torch.equal(
        penalties.reference(logits.clone(), none, none, none, [2.0] * 2, [1.0] * 2, [1.0] * 2), logits
    )
