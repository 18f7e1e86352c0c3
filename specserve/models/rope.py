"""Inverse frequencies of a rope, scaled as the checkpoint was trained."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specserve.models.specs import RopeSpec


def inverse_frequencies(spec: RopeSpec) -> Tensor:
    """[rotated / 2] float32 on the CPU."""
    exponents = torch.arange(0, spec.rotated, 2, dtype=torch.int64).float() / spec.rotated
    frequencies: Tensor = torch.pow(spec.base, exponents).reciprocal()
    if spec.scaling["rope_type"] == "linear":
        return frequencies / float(spec.scaling["factor"])
    if spec.scaling["rope_type"] == "factors":
        return frequencies / torch.tensor(spec.scaling["factors"])
    if spec.scaling["rope_type"] == "llama3":
        return _llama3(frequencies, spec)
    return frequencies


def _llama3(frequencies: Tensor, spec: RopeSpec) -> Tensor:
    """Llama 3.1: long waves are slowed by `factor`, short ones kept, those between blended."""
    s = spec.scaling
    old_length, low, high = s["original_max_position_embeddings"], s["low_freq_factor"], s["high_freq_factor"]
    waves = 2 * math.pi / frequencies
    slowed = frequencies / s["factor"]
    share = ((old_length / waves - low) / (high - low)).clamp(0.0, 1.0)  # of the unscaled frequency
    blended: Tensor = (1 - share) * slowed + share * frequencies
    return blended
