"""Matrices as an implementation of the ops wants them: tensors, or panels of a weight class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor

from specserve.ops import Weight
from specserve.ops.native import Blocks, PackedWeight, WeightClass, pack


class Maker(Protocol):
    """`takes_blocks`: parts may come as `Blocks`. Of a gated pair the gate comes first; errors in the input
    of a sensitive matrix (queries, keys, values) cost the most."""

    @property
    def takes_blocks(self) -> bool: ...
    def make(
        self, parts: Sequence[Tensor | Blocks], *, is_gated: bool = False, is_sensitive: bool = False
    ) -> Weight: ...
    def num_bytes(self, weight: Weight) -> int: ...


@dataclass(frozen=True, slots=True)
class TensorMaker:
    """Parts one under the other, as one tensor."""

    dtype: torch.dtype
    device: torch.device
    takes_blocks: bool = False

    def make(
        self, parts: Sequence[Tensor | Blocks], *, is_gated: bool = False, is_sensitive: bool = False
    ) -> Weight:
        tensors = [part.to(self.dtype) for part in parts if isinstance(part, Tensor)]
        return torch.cat(tensors).to(self.device).contiguous()

    def num_bytes(self, weight: Weight) -> int:
        assert isinstance(weight, Tensor)
        return weight.numel() * weight.element_size()


@dataclass(frozen=True, slots=True)
class PanelMaker:
    """Panels for the native kernels; `weight_class` None takes each matrix as its file has it.
    `activation_bits` None is 16 for sensitive matrices, else 8."""

    library: ModuleType
    weight_class: WeightClass | None
    activation_bits: int | None

    @property
    def takes_blocks(self) -> bool:
        return self.weight_class is None

    def make(
        self, parts: Sequence[Tensor | Blocks], *, is_gated: bool = False, is_sensitive: bool = False
    ) -> Weight:
        return pack(
            self.library,
            parts,
            self.weight_class,
            activation_bits=self.activation_bits or (16 if is_sensitive else 8),
            interleaved=is_gated,
        )

    def num_bytes(self, weight: Weight) -> int:
        assert isinstance(weight, PackedWeight)
        return weight.num_bytes
