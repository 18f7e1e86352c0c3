"""A matrix over rows, by sums."""

from __future__ import annotations

import pytest
import torch

from specserve.ops import linear


@pytest.mark.parametrize(("rows", "inner", "outer"), [(3, 5, 2), (1, 1, 1), (0, 4, 3)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_equals_the_sum(rows: int, inner: int, outer: int, has_bias: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(rows, inner), torch.randn(outer, inner)
    bias = torch.randn(outer) if has_bias else None
    expected = torch.empty(rows, outer)
    for r in range(rows):
        for o in range(outer):
            total = sum(float(x[r, i]) * float(weight[o, i]) for i in range(inner))
            expected[r, o] = total + (0.0 if bias is None else float(bias[o]))
    torch.testing.assert_close(linear.reference(x, weight, bias), expected)


def test_the_dtype_stays() -> None:
    assert (
        linear.reference(torch.ones(2, 3).bfloat16(), torch.ones(4, 3).bfloat16(), None).dtype
        == torch.bfloat16
    )
