"""A request decides on its own speculation; the text does not depend on what it decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specserve.engine.engine import Engine
from specserve.errors import InvalidRequest
from tests.support.deployment import deploy, serving
from tests.support.drafters import random_guesses, self_draft
from tests.support.engine import Run, greedy, letters, make_engine, plain, request, run
from tests.support.server import Running
from tests.support.stub import StubModel
from tests.support.tiny import deploy_tiny, write_tiny
from tests.support.traffic import mixed_traffic, sampled
from tests.support.witness import Cached, Recording
from tests.support.zoo import ZOO, Habitat

MODEL = StubModel()
TEMPLATE = "{{ messages[0].content }}"
MESSAGE = {"role": "user", "content": "a"}
GREEDY = {"prompt": "abc", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
CHOICES: list[dict[str, Any] | None] = [
    None,
    {},
    {"enabled": True},
    {"enabled": False},
    {"num_speculative_tokens": 0},
    {"num_speculative_tokens": 1},
    {"num_speculative_tokens": 3, "method": "ngram"},
]


def drafted(found: Run) -> dict[str, int]:
    """Verified guesses of each request."""
    spec = {name: result.last.spec_decode_metrics for (name, _), result in found.results.items()}
    return {name: metrics.num_draft_tokens for name, metrics in spec.items() if metrics}


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize(
    "name", ["self", "random", "always-wrong", "always-right", "out-of-vocabulary", "cached-lazy"]
)
def test_requests_side_by_side_each_get_what_they_asked_for(name: str, kind: str) -> None:
    make = greedy if kind == "greedy" else sampled
    requests = [
        request(f"r{n}", [1, 2, 3], make(24, ignore_eos=True, logprobs=1, speculation=asked))
        for n, asked in enumerate(CHOICES)
    ]
    expected = plain(MODEL, [request("a", [1, 2, 3], make(24, ignore_eos=True, logprobs=1))])
    drafter = ZOO[name](Habitat(MODEL, [[1, 2, 3, *expected["a"].token_ids]], page_size=4, k=4))
    engine = make_engine(MODEL, Recording(drafter, 4, MODEL), k=4, budget=64)
    found = run(engine, requests)
    assert {str(result.answer) for result in found.results.values()} == {str(expected["a"].answer)}
    num = drafted(found)
    assert (num["r3"], num["r4"]) == (0, 0)
    assert min(num[f"r{n}"] for n in (0, 1, 2, 5, 6)) > 0
    for n, most in ((5, 1), (6, 3)):
        metrics = found[f"r{n}"].last.spec_decode_metrics
        assert metrics is not None
        assert max(metrics.acceptance_histogram_by_draft_length) <= most == metrics.num_spec_tokens
        assert len(metrics.acceptance_histogram) == most + 1
        assert metrics.method == "ngram"


def test_a_drafter_learns_from_requests_it_may_not_guess_for() -> None:
    drafter = Cached(self_draft(MODEL), MODEL, page_size=4, k=4)
    witness = Recording(drafter, 4, MODEL)
    engine = make_engine(MODEL, witness)
    found = run(
        engine, [request("a", [5, 6, 7, 8], greedy(16, ignore_eos=True, speculation={"enabled": False}))]
    )
    assert witness.num_proposed == 0
    assert witness.stories[0].tokens == [5, 6, 7, 8, *found["a"].token_ids]
    again = run(engine, [request("b", [5, 6, 7, 8], greedy(16, ignore_eos=True))])
    assert again["b"].token_ids == found["a"].token_ids
    assert again["b"].last.num_cached_tokens == 0, "a prompt of one page: its last token is computed"
    assert drafter.num_rows_read > 0


def test_pages_of_a_request_without_guesses_serve_one_with_guesses() -> None:
    """The drafter's rows in shared pages were written while nobody asked it for anything."""
    drafter = Cached(self_draft(MODEL), MODEL, page_size=4, k=4, is_lazy=True)
    engine = make_engine(MODEL, Recording(drafter, 4, MODEL))
    prompt = [n % 9 for n in range(30)]
    first = run(engine, [request("a", prompt, greedy(8, ignore_eos=True))])
    off = run(engine, [request("b", prompt, greedy(8, ignore_eos=True, speculation={"enabled": False}))])
    on = run(engine, [request("c", prompt, greedy(8, ignore_eos=True))])
    assert first["a"].token_ids == off["b"].token_ids == on["c"].token_ids
    assert off["b"].last.num_cached_tokens == on["c"].last.num_cached_tokens == 28
    assert on.num_accepted > 0


@pytest.mark.parametrize("asked", CHOICES)
def test_mixed_traffic_answers_alike_whatever_it_asks_of_speculation(asked: dict[str, Any] | None) -> None:
    tokenizer = letters()
    requests = mixed_traffic(speculation=asked)
    engine = make_engine(MODEL, random_guesses(), tokenizer=tokenizer, num_pages=24, max_model_len=48)
    expected = plain(MODEL, mixed_traffic(), tokenizer=tokenizer, num_pages=48, page_size=1)
    assert run(engine, requests).answers == expected.answers


# --- over HTTP --------------------------------------------------------------------------------


def spec_of(server: Running, **body: Any) -> tuple[str, dict[str, Any]]:
    reply = server.complete(**GREEDY, **body)
    return reply["choices"][0]["text"], reply["metrics"]["speculative_decoding"]


def test_a_reply_says_what_was_used() -> None:
    with serving(deploy(), chat_template=TEMPLATE) as server:
        texts = set()
        for asked in CHOICES[1:]:
            text, spec = spec_of(server, speculation=asked)
            texts.add(text)
            k = (asked or {}).get(
                "num_speculative_tokens", 4 if (asked or {}).get("enabled") is not False else 0
            )
            assert (spec["enabled"], spec["num_spec_tokens"]) == (k > 0, k)
            assert spec["method"] == ("ngram" if k else None)
            assert (spec["num_draft_tokens"] > 0) == (k > 0)
        reply = server.complete(**GREEDY)
        assert "metrics" not in reply
        assert texts == {reply["choices"][0]["text"]}
        chat = server.chat(max_tokens=4, speculation={"enabled": False})
        assert chat["metrics"]["speculative_decoding"]["enabled"] is False


@pytest.mark.parametrize("has_usage", [False, True])
def test_the_last_chunk_of_a_stream_says_what_was_used(has_usage: bool) -> None:
    with serving(deploy()) as server:
        body = {**GREEDY, "stream": True, "speculation": {"num_speculative_tokens": 2}}
        if has_usage:
            body["stream_options"] = {"include_usage": True}
        events = server.post("/v1/completions", **body).text.split("\n\n")[:-2]
    *before, last = [json.loads(event[6:]) for event in events]
    assert last["metrics"]["speculative_decoding"]["num_spec_tokens"] == 2
    assert last["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] > 0
    assert not any("metrics" in chunk for chunk in before)


@pytest.mark.parametrize(
    ("k", "asked", "param", "words"),
    [
        (4, {"num_speculative_tokens": 5}, "speculation.num_speculative_tokens", "=5 must be at most 4"),
        (4, {"method": "eagle3"}, "speculation.method", "'eagle3' is not loaded; loaded at start: ngram"),
        (4, {"k": 1}, "speculation.k", "unknown key 'k'; known: enabled, num_speculative_tokens, method"),
        (4, {"enabled": "yes"}, "speculation.enabled", "must be true or false, got 'yes'"),
        (4, True, "speculation", "must be an object"),
        (0, {"enabled": True}, "speculation.enabled", "needs a drafter and none is loaded"),
        (0, {"method": "ngram"}, "speculation.method", "loaded at start: none"),
    ],
)
def test_what_cannot_be_is_a_400_that_names_it(k: int, asked: Any, param: str, words: str) -> None:
    with serving(deploy(k=k), chat_template=TEMPLATE) as server:
        for path, more in (("completions", {"prompt": "a"}), ("chat/completions", {"messages": [MESSAGE]})):
            reply = server.post(f"/v1/{path}", speculation=asked, **more)
            assert reply.status_code == 400
            error = reply.json()["error"]
            assert error["param"] == param
            assert words in error["message"]


def test_without_a_drafter_off_is_no_mistake() -> None:
    with serving(deploy(k=0)) as server:
        _, spec = spec_of(server, speculation={"enabled": False})
        assert (spec["enabled"], spec["num_spec_tokens"], spec["num_spec_steps"]) == (False, 0, 0)


def test_counts_of_requests_sum_to_the_server_s() -> None:
    engine: Engine = make_engine(MODEL, self_draft(MODEL), k=4)
    found = run(
        engine, [request(f"r{n}", [n, 1], greedy(20, speculation=asked)) for n, asked in enumerate(CHOICES)]
    )
    assert sum(drafted(found).values()) == found.num_drafted > 0


def test_a_drafter_answers_to_the_name_it_was_configured_with(tmp_path: Path) -> None:
    options = {"speculative_config": {"method": "ngram_gpu", "num_speculative_tokens": 2}}
    engine = deploy_tiny(write_tiny(tmp_path), options).engine
    for name in ("ngram_gpu", "ngram"):
        engine.check(request("a", [1], greedy(speculation={"method": name})))
    with pytest.raises(InvalidRequest, match="'suffix' is not loaded; loaded at start: ngram, ngram_gpu"):
        engine.check(request("a", [1], greedy(speculation={"method": "suffix"})))
