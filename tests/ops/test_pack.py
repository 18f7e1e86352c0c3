"""GGUF blocks are taken over as they are: a packed row holds the numbers the `gguf` package reads."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from specserve.ops.native import Blocks, pack
from tests.support.native import library

K, ROWS = 512, 20
SCALES_AT = {"Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_blocks_lose_nothing(name: str) -> None:
    native = library()
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (ROWS, K // block, size), dtype=np.uint8)
    for at in SCALES_AT.get(name, (0,)):  # half floats of ordinary size
        scales = random.uniform(0.001, 0.02, (ROWS, K // block, 1)).astype(np.float16)
        blocks[:, :, at : at + 2] = scales.view(np.uint8)
    data = blocks.reshape(ROWS, -1)
    [packed] = pack(native, [Blocks(data, int(kind), K)], None, activation_bits=8).parts
    expected = gguf.dequantize(data, kind)
    row = np.empty(K, np.float32)
    for number in range(ROWS):
        packed.row(number, K, row.ctypes.data)
        assert np.array_equal(row, expected[number])
