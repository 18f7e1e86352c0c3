"""RMS norm (Zhang & Sennrich, 2019): x / sqrt(mean(x²) + eps) * weight."""

from __future__ import annotations

import torch
from torch import Tensor


def reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Over the last axis of x [..., d] with weight [d] float32; computed in float32, returned in x's dtype.

    Gemma's (1 + w) is already in the weight.
    """
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (scaled * weight).to(x.dtype)
