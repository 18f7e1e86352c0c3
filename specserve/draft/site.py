"""Where a drafter's network runs: on the target's device, threads and ops, in its page table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from specserve.models import ModelFiles, load_model
from specserve.models.decoder import Decoder
from specserve.models.specs import read_spec
from specserve.models.weights import PanelMaker
from specserve.ops import Ops
from specserve.ops.native import Pool


@dataclass(frozen=True, slots=True)
class Site:
    """`dtype` is that of activations. `pool_for` gives the threads of the native kernels where they can carry
    a network with heads of this size, else None; `maker` their weights, of the class that a `quantization`
    means. `cache_type` is the target's keys' and values'."""

    device: torch.device
    dtype: str
    cache_type: torch.dtype
    ops: Ops
    pool_for: Callable[[int], Pool | None]
    maker: Callable[[str | None], PanelMaker | None]

    def load(self, files: ModelFiles, quantization: str | None) -> tuple[Decoder, Pool | None]:
        """A network and what runs it. Raises `ModelError`."""
        pool = self.pool_for(read_spec(files.config, files.name).head_size)
        maker = self.maker(quantization) if pool is not None else None
        dtype = self.dtype if pool is None else "float32"
        model = load_model(files, ops=self.ops, dtype=dtype, device=self.device, maker=maker, progress=True)
        return model, pool
