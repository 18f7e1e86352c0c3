"""Rope is multiplication by a complex number, pair by pair."""

from __future__ import annotations

import cmath

import pytest
import torch

from specserve.ops import rope


@pytest.mark.parametrize(("rows", "heads", "size", "rotated"), [(5, 3, 8, 8), (1, 1, 6, 2), (0, 2, 4, 4)])
def test_pairs_turn_by_position_times_frequency(rows: int, heads: int, size: int, rotated: int) -> None:
    torch.manual_seed(0)
    x, positions = torch.randn(rows, heads, size), torch.arange(rows) * 3 + 1
    frequencies = torch.rand(rotated // 2)
    got = rope.reference(x, *rope.angles(positions, frequencies, 1.5))
    expected = x.clone()
    for row in range(rows):
        for head in range(heads):
            for i in range(rotated // 2):
                turn = 1.5 * cmath.exp(1j * float(positions[row]) * float(frequencies[i]))
                pair = complex(float(x[row, head, i]), float(x[row, head, i + rotated // 2])) * turn
                expected[row, head, i], expected[row, head, i + rotated // 2] = pair.real, pair.imag
    torch.testing.assert_close(got, expected)


def test_half_precision_is_turned_in_float32() -> None:
    x = torch.randn(4, 2, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    angles = rope.angles(torch.arange(4) + 8000, torch.tensor([1.0, 0.1, 0.01, 0.001]), 1.0)
    got = rope.reference(x, *angles)
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, rope.reference(x.float(), *angles).bfloat16())
