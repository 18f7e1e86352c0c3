"""Field faults seen by clients: the whole server over the stub target, real drafts, real streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from specserve.draft.base import Drafter
from specserve.engine.engine import Engine
from tests.support.drafters import self_draft
from tests.support.engine import check_idle, letters, make_engine
from tests.support.server import Running, serving
from tests.support.stub import StubModel, script_rule
from tests.support.witness import Recording

LAUGH = [25, 24, 23, *[7, 0, 26] * 30]  # "zyxha ha ha ha "


@contextmanager
def server(model: StubModel, drafter: Drafter, **options: Any) -> Iterator[tuple[Running, Engine]]:
    tokenizer = letters()
    engine = make_engine(model, drafter, tokenizer=tokenizer, eos=None, max_waiting=64, **options)
    engine.tokenizer, engine.max_waiting = tokenizer, 64  # type: ignore[attr-defined]
    served = {"max_model_len": engine.scheduler.config.max_model_len}
    with serving(engine, served=served) as running:  # type: ignore[arg-type]
        yield running, engine


def events(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in reply.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line[6:])


def streamed(running: Running, **body: Any) -> tuple[str, list[str], str, dict[str, int]]:
    """Text, tokens with logprobs, reason and usage, as a client that reads the stream puts them together."""
    text, tokens, reason, usage = "", [], "", {}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    with running.client.stream("POST", "/v1/completions", json=body) as reply:
        for event in events(reply):
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                text += choice["text"]
                tokens += (choice["logprobs"] or {"tokens": []})["tokens"]
                reason = choice["finish_reason"] or reason
    return text, tokens, reason, usage


@pytest.mark.parametrize("k", [1, 4, 16])
def test_recipe_03_ids_and_logprobs_cut_with_the_text_streaming_and_not(k: int) -> None:
    model = StubModel(script_rule([LAUGH]))
    body = {"prompt": LAUGH[:4], "max_tokens": 60, "temperature": 0, "stop": " ha ha ha", "logprobs": 2}
    with server(model, self_draft(model), k=k) as (running, _):
        whole = running.complete(**body)
        text, tokens, reason, usage = streamed(running, **body)
    (choice,) = whole["choices"]
    assert (text, reason) == (choice["text"], choice["finish_reason"]) == ("a", "stop")
    assert tokens == choice["logprobs"]["tokens"]
    assert len(tokens) == usage["completion_tokens"] == whole["usage"]["completion_tokens"] == 10


def test_recipe_04_end_token_in_mid_block_in_the_stream() -> None:
    model = StubModel(script_rule([list(range(25))]))
    with server(model, self_draft(model), k=7) as (running, _):
        for position in range(2, 16):
            body = {"prompt": [0, 1], "max_tokens": 20, "temperature": 0, "stop_token_ids": [position]}
            text, _, reason, usage = streamed(running, **body)
            assert text == "abcdefghijklmnopqrstuvwxyz"[2:position]
            assert (reason, usage["completion_tokens"]) == ("stop", position - 1)


def test_recipe_05_exact_token_budget_in_the_usage() -> None:
    model = StubModel(script_rule([list(range(25))]))
    with server(model, self_draft(model), k=4, num_pages=40) as (running, _):
        for max_tokens in range(1, 65):
            body = {
                "prompt": [0, 1],
                "max_tokens": max_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "logprobs": 0,
            }
            text, tokens, reason, usage = streamed(running, **body)
            assert len(text) == len(tokens) == usage["completion_tokens"] == max_tokens
            assert reason == "length"
    totals = [stats.num_generation_tokens for stats in running.stats if stats.num_generation_tokens]
    assert sum(totals) >= sum(range(1, 65)), "the warm-up's are counted too"
    finished = [done for stats in running.stats for done in stats.finished if done.num_prompt_tokens == 2]
    assert [done.num_generation_tokens for done in finished][-64:] == list(range(1, 65))


def test_recipe_26_client_goes_away() -> None:
    model = StubModel()
    drafter = Recording(self_draft(model), 4, model)
    size = {"num_pages": 800, "max_model_len": 1600, "max_num_seqs": 2}
    with server(model, drafter, k=4, **size) as (running, engine):
        body = {"temperature": 0, "max_tokens": 1500, "stream": True}
        for number in range(50):
            prompt = [number % 26, 1, 2]
            with running.client.stream("POST", "/v1/completions", json={"prompt": prompt, **body}) as reply:
                chunks = events(reply)
                for _ in range(5):
                    next(chunks)
        after = running.complete(prompt=[3, 1, 4], max_tokens=30, temperature=0)
        assert after["usage"]["completion_tokens"] == 30
        assert after["choices"][0]["finish_reason"] == "length"
    ends = [done for stats in running.stats for done in stats.finished if done.num_prompt_tokens == 3]
    assert [done.finish_reason for done in ends] == ["abort"] * 50 + ["length"]
    assert not engine.has_work
    assert drafter.forgotten >= set(drafter.stories)
    check_idle(engine)
