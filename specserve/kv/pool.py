"""The tensors behind the pages: one pair per layer, all indexed by the same slots."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specserve.types import KVShape, LayerCache


def allocate(
    shapes: Sequence[KVShape], num_pages: int, page_size: int, device: torch.device
) -> list[LayerCache]:
    """One `LayerCache` per shape with `num_pages * page_size` slots.

    Zeroed once, so that memory is committed at start and not in the middle of serving; correctness does
    not depend on it.
    """
    slots = num_pages * page_size
    caches = []
    for shape in shapes:
        size = (slots, shape.num_kv_heads, shape.head_size)
        keys = torch.zeros(size, dtype=shape.dtype, device=device)
        caches.append(LayerCache(keys, torch.zeros_like(keys)))
    return caches


def bytes_per_token(shapes: Sequence[KVShape]) -> int:
    return sum(shape.bytes_per_token for shape in shapes)
