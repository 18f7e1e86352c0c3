"""Whether a checkpoint's numbers are finite: a look at each weight, or each scale of blocks, as it is read.

One damaged scale makes every text of a model nonsense, and no kernel would say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray
from torch import Tensor

CHUNK = 2**16  # values looked at twice while they are in a core's cache
HALF = 0x7C00  # the bits of infinity; those of a NaN are larger
INFINITY: Mapping[torch.dtype, int] = {
    torch.float16: HALF,
    torch.bfloat16: 0x7F80,
    torch.float32: 0x7F80_0000,
}
SCALES: Mapping[int, slice] = {  # scale and minimum of a block that is taken over, in halves
    2: slice(0, 1),  # Q4_0
    3: slice(0, 2),  # Q4_1
    6: slice(0, 1),  # Q5_0
    7: slice(0, 2),  # Q5_1
    8: slice(0, 1),  # Q8_0
    12: slice(0, 2),  # Q4_K
    13: slice(0, 2),  # Q5_K
    14: slice(104, 105),  # Q6_K
}


def is_finite(tensor: Tensor) -> bool:
    """Of any shape and float type, on the CPU."""
    known = tensor if tensor.dtype in INFINITY else tensor.float()
    signed = torch.int32 if known.element_size() == 4 else torch.int16
    bits = known.reshape(-1).view(signed).numpy()
    return all(_are_finite(part, INFINITY[known.dtype]) for part in _parts(bits))


def has_finite_scales(stored: NDArray[np.uint8], kind: int) -> bool:
    """Of blocks as bytes [n, bytes of a row]; `kind` is one of `SCALES`."""
    _, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    halves = stored.view(np.int16).reshape(-1, size // 2)[:, SCALES[kind]]
    return all(_are_finite(np.ascontiguousarray(part), HALF) for part in _parts(halves))


def _parts(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (values[i : i + CHUNK] for i in range(0, len(values), CHUNK))


def _are_finite(bits: NDArray[Any], infinity: int) -> bool:
    """Bits of floats as signed integers. So read, infinity and positive NaNs are the largest; read as
    unsigned integers, the negative ones are."""
    unsigned = bits.view(f"u{bits.itemsize}")
    sign = 1 << (8 * bits.itemsize - 1)
    return bool(bits.max() < infinity and unsigned.max() < sign + infinity)
