"""What is written at slots is read there, rounded to the cache's dtype, and nothing else changes."""

from __future__ import annotations

import pytest
import torch

from specserve.ops import cache
from specserve.types import LayerCache


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("slots", [[], [4], [7, 0, 3]])
def test_round_trip(dtype: torch.dtype, slots: list[int]) -> None:
    torch.manual_seed(0)
    layer = LayerCache(*(torch.full((9, 2, 3), torch.nan, dtype=dtype) for _ in "kv"))
    keys, values = torch.randn(len(slots), 2, 3), torch.randn(len(slots), 2, 3)
    places = torch.tensor(slots, dtype=torch.int64)
    cache.write(keys, values, layer, places)
    found = cache.read(layer, places)
    assert torch.equal(found[0], keys.to(dtype))
    assert torch.equal(found[1], values.to(dtype))
    untouched = [slot for slot in range(9) if slot not in slots]
    assert layer.keys[untouched].isnan().all()
    assert layer.values[untouched].isnan().all()
