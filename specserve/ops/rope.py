"""Rotary position embedding (Su et al., 2021), halves rotated against each other."""

from __future__ import annotations

import torch
from torch import Tensor


def angles(positions: Tensor, inverse_frequencies: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """(cosine, sine), each [n, r] float32, for positions [n] and inverse frequencies [r]; `factor` scales
    both (YaRN's attention factor, else 1)."""
    phase = positions.float()[:, None] * inverse_frequencies[None, :]
    return phase.cos() * factor, phase.sin() * factor


def reference(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """x [n, heads, d] with its first 2 r components rotated pairwise, (i, i + r), by angle i of each row."""
    rotated = cosine.shape[-1] * 2
    first, second = x[..., : rotated // 2].float(), x[..., rotated // 2 : rotated].float()
    cosine, sine = cosine[:, None, :], sine[:, None, :]
    parts = [first * cosine - second * sine, second * cosine + first * sine]
    turned = torch.cat(parts, dim=-1).to(x.dtype)
    return turned if rotated == x.shape[-1] else torch.cat([turned, x[..., rotated:]], dim=-1)
