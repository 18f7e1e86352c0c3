"""Rounding to the integer weight classes, as definitions: what csrc/pack.cpp does to weights and csrc/rows.h
to the rows they multiply. Numbers are returned as float32, not as digits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP = 32  # inputs that share a scale
SMALLEST = 1e-30  # groups whose largest magnitude is no larger are zero


def weights_int8(weight: Tensor) -> Tensor:
    """[n, k] float32: per group one scale, a half float, that puts the largest magnitude at 127."""
    groups = _groups(weight)
    scale = _half(groups.abs().amax(-1, keepdim=True) / 127)
    return _ungroup((groups * _inverse(scale)).round().clamp(-127, 127) * scale, weight)


def weights_int4(weight: Tensor) -> Tensor:
    """[n, k] float32: per group a minimum and a scale, half floats; 15 steps over its range and zero."""
    groups = _groups(weight)
    low, high = groups.amin(-1, keepdim=True).clamp(max=0), groups.amax(-1, keepdim=True).clamp(min=0)
    scale, minimum = _half((high - low) / 15), _half(low)
    return _ungroup(((groups - minimum) * _inverse(scale)).round().clamp(0, 15) * scale + minimum, weight)


def rows_for_int8(x: Tensor) -> Tensor:
    """[m, k] float32: 16 bit digits, one scale per row."""
    return _digits(x, 32767)


def rows_for_int4(x: Tensor, activation_bits: int) -> Tensor:
    """[m, k] float32: one scale per group; 8 bit are one digit, 16 are two (csrc/activations.h)."""
    return _ungroup(_digits(_groups(x), 127 if activation_bits == 8 else 127 * 128 + 63), x)


def _digits(x: Tensor, top: int) -> Tensor:
    peak = x.abs().amax(-1, keepdim=True)
    # One division: a number over a tensor would be a reciprocal and a product, which rounds twice.
    inverse = torch.where(peak > SMALLEST, torch.full_like(peak, top) / peak, 0.0)
    return (x * inverse).round() * (peak / top)


def _groups(x: Tensor) -> Tensor:
    """[n, groups, GROUP], the last group filled with zeros."""
    num_groups = -(-x.shape[1] // GROUP)
    return F.pad(x, (0, num_groups * GROUP - x.shape[1])).view(len(x), num_groups, GROUP)


def _ungroup(groups: Tensor, like: Tensor) -> Tensor:
    return groups.flatten(1)[:, : like.shape[1]]


def _half(x: Tensor) -> Tensor:
    return x.half().float()


def _inverse(scale: Tensor) -> Tensor:
    return torch.where(scale > 0, 1 / scale, 0.0)
