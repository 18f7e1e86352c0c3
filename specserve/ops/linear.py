"""A matrix over rows. Weights are opaque to networks: a loader makes them, this op reads them."""

from __future__ import annotations

from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor

Weight: TypeAlias = Tensor  # [out, in]


def reference(x: Tensor, weight: Weight, bias: Tensor | None) -> Tensor:
    """x [n, in] times weightᵀ plus bias [out]: [n, out] in x's dtype."""
    return F.linear(x, weight, bias)
