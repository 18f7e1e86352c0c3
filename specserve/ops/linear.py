"""A matrix over rows. Weights are opaque to networks: a loader makes them, this op reads them."""

from __future__ import annotations

from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor

from specserve.ops.native import PackedWeight

Weight: TypeAlias = Tensor | PackedWeight  # [out, in]


def reference(x: Tensor, weight: Weight, bias: Tensor | None) -> Tensor:
    """x [n, in] times weightᵀ plus bias [out]: [n, out] in x's dtype. Panels are for native programs only."""
    return F.linear(x, as_tensor(weight), bias)


def as_tensor(weight: Weight) -> Tensor:
    """Raises `TypeError` for a weight in panels."""
    if not isinstance(weight, Tensor):
        raise TypeError("a weight in panels needs a native program")
    return weight
