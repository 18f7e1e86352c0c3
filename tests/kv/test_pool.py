"""The tensors behind the pages."""

from __future__ import annotations

import torch

from specserve.kv.pool import allocate, bytes_per_token
from specserve.types import KVShape

SHAPES = [KVShape(2, 8, torch.float16), KVShape(1, 4, torch.float32)]


def test_each_layer_has_its_own_shape_and_dtype_over_the_same_slots() -> None:
    first, second = allocate(SHAPES, num_pages=3, page_size=5, device=torch.device("cpu"))
    assert first.keys.shape == first.values.shape == (15, 2, 8)
    assert second.keys.shape == second.values.shape == (15, 1, 4)
    assert (first.keys.dtype, second.values.dtype) == (torch.float16, torch.float32)
    assert first.keys.data_ptr() != first.values.data_ptr()


def test_a_token_costs_keys_and_values_of_all_layers() -> None:
    assert bytes_per_token(SHAPES) == 2 * 2 * 8 * 2 + 2 * 1 * 4 * 4
    caches = allocate(SHAPES, num_pages=3, page_size=5, device=torch.device("cpu"))
    total = sum(t.numel() * t.element_size() for cache in caches for t in (cache.keys, cache.values))
    assert total == 15 * bytes_per_token(SHAPES)
