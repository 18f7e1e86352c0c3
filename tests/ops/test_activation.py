"""The gate's activation times the other half."""

from __future__ import annotations

import math

import pytest
import torch

from specserve.ops import activation
from specserve.ops.activation import Activation


def silu(x: float) -> float:
    return x / (1 + math.exp(-x))


def gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(("kind", "formula"), [("silu", silu), ("gelu_tanh", gelu_tanh)])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_equals_the_formula(kind: Activation, formula: object, rows: int) -> None:
    gate_up = torch.randn(rows, 10, generator=torch.Generator().manual_seed(0)) * 3
    expected = [[formula(row[i]) * row[i + 5] for i in range(5)] for row in gate_up.tolist()]  # type: ignore[operator]
    torch.testing.assert_close(activation.reference(gate_up, kind), torch.tensor(expected).view(rows, 5))
