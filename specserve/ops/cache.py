"""Keys and values into and out of a layer's cache, by slot."""

from __future__ import annotations

from torch import Tensor

from specserve.types import LayerCache


def write(keys: Tensor, values: Tensor, cache: LayerCache, slots: Tensor) -> None:
    """Store rows [n, kv heads, d] at `slots` [n] int64, rounded to the cache's dtype."""
    cache.keys.index_copy_(0, slots, keys.to(cache.keys.dtype))
    cache.values.index_copy_(0, slots, values.to(cache.values.dtype))


def read(cache: LayerCache, slots: Tensor) -> tuple[Tensor, Tensor]:
    """(keys, values) at `slots` [c]: each [c, kv heads, d] in the cache's dtype."""
    return cache.keys.index_select(0, slots), cache.values.index_select(0, slots)
