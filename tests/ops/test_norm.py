"""RMS norm by its formula."""

from __future__ import annotations

import math

import pytest
import torch

from specserve.ops import norm


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 7), (1, 1), (0, 4)])
def test_equals_the_formula(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(shape) * 3, torch.randn(shape[-1])
    got = norm.reference(x, weight, 1e-3)
    expected = torch.empty_like(x).view(-1, shape[-1])
    for row, values in zip(expected, x.view(-1, shape[-1]).tolist(), strict=True):
        root = math.sqrt(sum(v * v for v in values) / len(values) + 1e-3)
        row.copy_(torch.tensor([v / root * w for v, w in zip(values, weight.tolist(), strict=True)]))
    torch.testing.assert_close(got, expected.view(shape))


def test_half_precision_is_normed_in_float32() -> None:
    x = torch.full((1, 4), 300.0, dtype=torch.float16)  # its square is past float16
    got = norm.reference(x, torch.ones(4), 0.0)
    assert got.dtype == torch.float16
    assert got.tolist() == [[1.0] * 4]
