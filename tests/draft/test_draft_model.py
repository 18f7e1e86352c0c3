"""A separate model as drafter, in the target's pages: its guesses, its rows, its limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from specserve.engine.build import Deployment
from specserve.errors import ConfigError
from specserve.types import AskBatch, Draft, SamplingParams
from tests.support.checkpoints import SIZES, random_model
from tests.support.engine import Run, request, run
from tests.support.tiny import VOCAB, deploy_tiny, write_tiny

K = 4
PROMPTS = [[1, *range(5, 5 + 7 * i)] for i in range(1, 5)]
SHARED = [1, *range(40, 90)]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another network with the same vocabulary: another number of layers and heads, another head size."""
    folder = tmp_path_factory.mktemp("draft")
    sizes = {**SIZES, "vocab_size": VOCAB, "num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 24}
    random_model(LlamaConfig(**sizes), seed=7).save_pretrained(folder)
    return folder


def deploy(
    target: Path, draft: Path | None, options: dict[str, Any] | None = None, **keys: Any
) -> Deployment:
    speculation = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": K, **keys}
    given = {"speculative_config": speculation} if draft else {}
    return deploy_tiny(target, {**given, **(options or {})})


def params(seed: int, temperature: float, num_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=temperature, max_tokens=num_tokens, seed=seed, ignore_eos=True)


def answers(deployment: Deployment, temperature: float = 0.0, num_tokens: int = 30) -> Run:
    """Some prompts together, two with a common beginning, which the cache of the others' pages may hold."""
    prompts = [*PROMPTS, [*SHARED, 7], [*SHARED, 9]]
    requests = [
        request(str(i), prompt, params(i, temperature, num_tokens)) for i, prompt in enumerate(prompts)
    ]
    return run(deployment.engine, requests, arrivals={"5": 12})


HARD = {"max_num_batched_tokens": 16, "block_size": 8, "max_model_len": 96}
FEW_TOKENS = {
    "float32": 112 * 2 * 768,
    "bfloat16": 112 * 2 * 384,
}  # bytes of 112 tokens with twice three layers


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("keys", [{}, {"draft_sample_method": "coupled"}])
def test_the_target_itself_as_draft_is_always_right(target: Path, keys: dict[str, str], dtype: str) -> None:
    for options in ({}, {**HARD, "kv_cache_memory_bytes": FEW_TOKENS[dtype]}):
        temperature = 0.9 if keys else 0.0
        found = answers(deploy(target, target, {"dtype": dtype, **options}, **keys), temperature)
        assert found.num_accepted == found.num_drafted > 0
        if options:
            assert found.total("num_preemptions") > 0
            assert found.total("prefix_hits") > 0


@pytest.mark.parametrize("options", [{}, HARD, {"enforce_eager": True}])
@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_a_draft_changes_no_text(
    target: Path, stranger: Path, temperature: float, options: dict[str, Any]
) -> None:
    plain = answers(deploy(target, None, options), temperature)
    for keys in (
        {},
        {"draft_sample_method": "coupled"},
        {"max_model_len": 40},
        {"num_speculative_tokens": 1},
    ):
        found = answers(deploy(target, stranger, options, **keys), temperature)
        assert found.num_drafted > 0
        texts = [run.results[key].token_ids for run in (plain, found) for key in plain.results]
        assert texts[: len(plain.results)] == texts[len(plain.results) :]


def test_guesses_are_those_of_transformers(target: Path, stranger: Path) -> None:
    oracle = AutoModelForCausalLM.from_pretrained(stranger)
    deployment = deploy(target, stranger, {"dtype": "float32"})
    asked: list[tuple[list[int], list[int]]] = []
    propose = deployment.engine.drafter.propose

    def watched(asks: AskBatch) -> Draft:
        draft = propose(asks)
        asked.extend((list(ask.tokens), tokens) for ask, tokens in zip(asks.asks, draft.tokens, strict=True))
        return draft

    deployment.engine.drafter.propose = watched  # type: ignore[method-assign]
    answers(deployment, temperature=1.0, num_tokens=12)
    assert len(asked) > 30
    for text, guesses in asked[::5]:
        logits = oracle(torch.tensor([text + guesses])).logits[0, len(text) - 1 : -1]
        assert guesses == logits.argmax(1).tolist()


def test_texts_beyond_the_drafts_context_run_without_guesses(target: Path, stranger: Path) -> None:
    found = answers(deploy(target, stranger, max_model_len=12))
    assert found.results["5", 0].outputs[-1].spec_decode_metrics is not None
    lengths = [len(result.token_ids) for result in found.results.values()]
    assert lengths == [30] * 6
    drafted = {name: result.last.spec_decode_metrics for (name, _), result in found.results.items()}
    assert drafted["5"].num_draft_tokens == 0
    assert drafted["0"].num_draft_tokens > 0


def test_a_draft_of_another_vocabulary_is_refused(target: Path, tmp_path: Path) -> None:
    random_model(LlamaConfig(**SIZES)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="should have the same vocabulary size"):
        deploy(target, tmp_path)


def test_a_draft_has_a_weight_class_of_its_own(target: Path) -> None:
    found = answers(deploy(target, target, {"dtype": "float32"}, quantization="int4"))
    assert 0 < found.num_accepted < found.num_drafted


def test_a_chain_may_have_two_drafts(target: Path, stranger: Path) -> None:
    members = [
        {"method": "draft_model", "model": str(folder), "num_speculative_tokens": k}
        for folder, k in ((stranger, 2), (target, 4))
    ]
    chain = {"speculative_config": {"method": "chain", "drafters": members}}
    plain, found = answers(deploy(target, None)), answers(deploy(target, None, chain))
    assert [result.token_ids for result in found.results.values()] == [
        result.token_ids for result in plain.results.values()
    ]
    assert found.num_accepted > 0.5 * found.num_drafted
