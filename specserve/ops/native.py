"""The compiled library: found once, or not at all. Nothing else in the package touches it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from specserve.errors import ModelError

logger = logging.getLogger(__name__)

WeightClass = Literal["float32", "bfloat16", "int8", "int4"]
CLASSES: tuple[WeightClass, ...] = ("float32", "bfloat16", "int8", "int4")
_FLOATS = {torch.float32: 0, torch.bfloat16: 1}
_BLOCKS = 2
TAKEN_OVER: dict[int, WeightClass] = {  # GGUF's block types that map onto a class without loss
    2: "int4",  # Q4_0
    3: "int4",  # Q4_1
    12: "int4",  # Q4_K
    6: "int8",  # Q5_0
    7: "int8",  # Q5_1
    8: "int8",  # Q8_0
    13: "int8",  # Q5_K
    14: "int8",  # Q6_K
}


@cache  # one warning, whoever asks
def find_library() -> ModuleType | None:
    """The module, or None with one warning: no compiler was there when the package was installed."""
    try:
        return import_module("specserve.ops._native")
    except ImportError as error:
        logger.warning("Native kernels are not available (%s); using PyTorch ops.", error)
        return None


@dataclass(frozen=True, slots=True)
class Pool:
    """The threads that programs run on, the library they belong to, and the kernels they use."""

    library: ModuleType
    threads: Any
    instruction_set: str


def make_pool(library: ModuleType, num_threads: int, instruction_set: str | None = None) -> Pool:
    """`instruction_set` is one of `library.instruction_sets`, best first; None is the best, "portable" is
    always there."""
    return Pool(library, library.Pool(num_threads), instruction_set or library.instruction_sets[0])


@dataclass(frozen=True, slots=True)
class Blocks:
    """GGUF blocks as they lie in the file: rows [n, bytes] uint8 of `kind`, each row `num_inputs` weights."""

    data: Any
    kind: int
    num_inputs: int


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A matrix in panels (csrc/layout.h): one native matrix, or several one under the other when their
    types differ. `activation_bits` is how finely its input is rounded (integer classes): 8 or 16."""

    parts: tuple[Any, ...]
    num_outputs: int
    num_inputs: int
    activation_bits: int

    @property
    def num_bytes(self) -> int:
        return sum(part.num_bytes for part in self.parts)


def pack(
    library: ModuleType,
    parts: Sequence[Tensor | Blocks],
    weight_class: WeightClass | None,
    *,
    activation_bits: int,
    interleaved: bool = False,
) -> PackedWeight:
    """Parts one under the other, or two parts' panels in turn (a gate and what it gates).

    Tensors [n, k] are rounded to `weight_class`. None takes every part as it is: blocks over into the class
    they map onto without loss, bfloat16 as bfloat16, other floats as float32.
    """
    classes = [weight_class or _own_class(part) for part in parts]
    sources = [_source(part) for part in parts]
    together = len({(c, tuple(source[:2])) for c, (source, _) in zip(classes, sources, strict=True)}) == 1
    if interleaved and not together:
        raise ModelError(f"a gate and what it gates have different types ({', '.join(classes)}).", "model")
    runs = [range(len(parts))] if together else [[i] for i in range(len(parts))]
    packed = tuple(
        library.pack([sources[i][0] for i in run], CLASSES.index(classes[run[0]]), interleaved)
        for run in runs
    )
    heights = [source[3] for source, _ in sources]
    return PackedWeight(packed, sum(heights), sources[0][0][4], activation_bits)


def _own_class(part: Tensor | Blocks) -> WeightClass:
    if isinstance(part, Blocks):
        return TAKEN_OVER[part.kind]
    return "bfloat16" if part.dtype == torch.bfloat16 else "float32"


def _source(part: Tensor | Blocks) -> tuple[list[int], object]:
    """What the library takes, and what must stay alive meanwhile."""
    if isinstance(part, Blocks):
        data = np.ascontiguousarray(part.data)
        return [_BLOCKS, part.kind, data.ctypes.data, data.shape[0], part.num_inputs], data
    tensor = part.contiguous() if part.dtype in _FLOATS else part.float().contiguous()
    return [_FLOATS[tensor.dtype], 0, tensor.data_ptr(), tensor.shape[0], tensor.shape[1]], tensor
