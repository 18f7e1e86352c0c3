"""Mixed traffic for the exactness tests, and all-pairs covers of option tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any

from specserve.types import Request, SamplingParams
from tests.support.engine import EOS, greedy, request

PREFIX = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]  # three pages of four, shared by several prompts
LOOP = [7, 8, 9, 10] * 5


def sampled(max_tokens: int = 16, **more: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.8, "max_tokens": max_tokens, "seed": 11, **more})


def mixed_traffic(**more: Any) -> list[Request]:
    """Greedy and seeded, alone and in choices, with every kind of parameter; some prompts share pages.
    `more` is given to each of them."""
    params = {
        "greedy": ([*PREFIX, 20], greedy(24, ignore_eos=True)),
        "greedy-again": ([*PREFIX, 20], greedy(24, ignore_eos=True)),
        "sampled": ([*PREFIX, 21], sampled(24, ignore_eos=True)),
        "loop": (LOOP, sampled(20, seed=3, ignore_eos=True)),
        "end": ([*PREFIX[:5], 30], greedy(24)),
        "choices": ([*PREFIX, 22, 23], sampled(12, n=3, seed=5)),
        "penalties": (LOOP[:11], greedy(20, frequency_penalty=1.5, repetition_penalty=1.25, ignore_eos=True)),
        "negative": (LOOP[:9], greedy(16, frequency_penalty=-2.0, presence_penalty=0.5)),
        "bans": (
            LOOP[:13],
            greedy(20, bad_words=["nn", "aaa", "b"], ignore_eos=True),
        ),  # both are in its text
        "biased": (LOOP[:13], sampled(16, logit_bias={4: 3.0, 8: -50.0}, bad_words=["ee"], seed=6)),
        "allowed": (LOOP[:6], sampled(16, allowed_token_ids=[*range(5, 25)], seed=8)),
        "patient": ([2, 6], sampled(16, min_tokens=9, logit_bias={EOS: 6.0}, seed=9)),
        "stops": ([1] * 10, sampled(24, stop=["ab", "e ", "q"], stop_token_ids=[17], seed=12)),
        "logprobs": ([*PREFIX[:8], 1], sampled(12, logprobs=3, seed=13)),
        "truncated": ([4, 4, 4, 2], sampled(16, top_k=5, top_p=0.9, min_p=0.05, seed=14)),
        "judged": ([*PREFIX, 9], greedy(6, prompt_logprobs=2, logprobs=0)),
    }
    return [
        request(name, prompt, replace(one, **more), arrival=float(i))
        for i, (name, (prompt, one)) in enumerate(params.items())
    ]


def all_pairs(table: Mapping[str, Sequence[Any]], seed: int = 0) -> list[dict[str, Any]]:
    """Rows of option values in which every pair of values of two options occurs; greedy, deterministic."""
    names = list(table)
    random = Random(seed)
    missing = {
        (a, x, b, y)
        for a, b in combinations(names, 2)
        for x, y in product(range(len(table[a])), range(len(table[b])))
    }
    rows = []
    while missing:
        a, x, b, y = min(missing)
        row = {a: x, b: y}
        for name in random.sample(names, len(names)):
            if name not in row:
                gains = [len(_pairs({**row, name: value}) & missing) for value in range(len(table[name]))]
                row[name] = gains.index(max(gains))
        missing -= _pairs(row)
        rows.append({name: table[name][row[name]] for name in names})
    return rows


def _pairs(row: Mapping[str, int]) -> set[tuple[str, int, str, int]]:
    items = row.items()
    return {(a, x, b, y) for (a, x), (b, y) in product(items, items) if a != b}
