"""Numbers that are none, against PyTorch's and gguf's own reading of the same bits."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from specserve.models import finite
from specserve.models.finite import SCALES, has_finite_scales, is_finite
from specserve.ops.native import TAKEN_OVER

NO_NUMBERS = [float("inf"), -float("inf"), float("nan"), -float("nan")]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite, "CHUNK", 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("place", [0, 3, 4, 10])
@pytest.mark.usefixtures("small_chunks")
def test_one_value_that_is_no_number_is_found_wherever_it_lies(
    dtype: torch.dtype, value: float, place: int
) -> None:
    values = torch.linspace(-2, 2, 11, dtype=dtype)
    assert is_finite(values)
    values[place] = value
    assert not is_finite(values)


@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_the_largest_and_the_smallest_numbers_are_numbers(dtype: torch.dtype) -> None:
    most, least = torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal / 2
    assert is_finite(torch.tensor([most, -most, 0.0, -0.0, least, -least], dtype=dtype).repeat(1000))


@pytest.mark.parametrize(("dtype", "integer"), [(torch.float16, torch.int16), (torch.bfloat16, torch.int16)])
def test_every_pattern_of_sixteen_bits_is_judged_as_pytorch_judges_it(
    dtype: torch.dtype, integer: torch.dtype
) -> None:
    values = torch.arange(-(2**15), 2**15, dtype=integer).view(dtype)
    assert [is_finite(value) for value in values] == values.isfinite().tolist()


def test_eight_bits_are_judged_too() -> None:
    values = torch.arange(-128, 128, dtype=torch.int8).view(torch.float8_e5m2)
    assert [is_finite(value) for value in values] == values.float().isfinite().tolist()


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0)])
def test_nothing_is_finite(shape: tuple[int, ...]) -> None:
    assert is_finite(torch.zeros(shape))


def test_strides_do_not_matter() -> None:
    values = torch.zeros(4, 6)
    values[1, 1] = torch.nan
    assert is_finite(values[:, ::2])
    assert not is_finite(values[:, 1::2].T)


# --- blocks -----------------------------------------------------------------------------------


def test_all_blocks_that_are_taken_over_have_known_scales() -> None:
    assert [*SCALES] == sorted(TAKEN_OVER)


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("bits", [0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFFFF])
@pytest.mark.usefixtures("small_chunks")
def test_scales_are_where_they_make_a_block_finite_or_not(kind: int, bits: int) -> None:
    """Each half of a block in turn is set to `bits`; gguf says whether the weights are still numbers."""
    block, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    for place in range(size // 2):
        stored = np.zeros((3, 2 * size), dtype=np.uint8)
        stored.view(np.uint16)[2, size // 2 + place] = bits
        with np.errstate(all="ignore"):
            weights = gguf.dequantize(stored, GGMLQuantizationType(kind))
        assert weights.shape == (3, 2 * block)
        assert has_finite_scales(stored, kind) == bool(np.isfinite(weights).all())
