"""Masks that leave nothing: the request ends there, with guesses as without, and nobody else notices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specserve.errors import InvalidRequest
from specserve.sampling.failure import NOTHING_ALLOWED
from specserve.sampling.processors import load_processors
from specserve.types import Request
from specserve.verify import load_verifier
from tests.support.deployment import deploy, serving
from tests.support.drafters import self_draft
from tests.support.engine import EOS, greedy, letters, make_engine, plain, request, run
from tests.support.stub import StubModel
from tests.support.traffic import sampled
from tests.support.witness import Recording
from tests.support.zoo import ZOO, Habitat

MODEL = StubModel()
LETTERS = letters()
PROCESSORS = load_processors(["tests.support.processors:alternate"])
A, B, C = 0, 1, 2

# What is asked for, and how many tokens come before nothing is left.
CONTRADICTIONS: dict[str, tuple[dict[str, Any], int]] = {
    "words": ({"allowed_token_ids": [A, B], "bad_words": ["b", "aaaaaa"]}, 5),
    "one word": ({"allowed_token_ids": [A], "bad_words": ["aaa"]}, 2),
    "end": ({"allowed_token_ids": [A, EOS], "bad_words": ["aaaaa"], "min_tokens": 12}, 4),
    "processor": ({"allowed_token_ids": [A, C], "extra_args": {"alternate": True}}, 1),
}


def contradictory() -> list[Request]:
    kinds = {"greedy": greedy(20, logprobs=1), "drawn": sampled(20, n=2, top_p=0.9, seed=3)}
    return [
        request(f"{kind} {name}", [5, 6, 7], replace(params, **asked))
        for kind, params in kinds.items()
        for name, (asked, _) in CONTRADICTIONS.items()
    ]


def consistent() -> list[Request]:
    return [
        request("masked", [5, 6, 7], greedy(20, allowed_token_ids=[A, B, C], bad_words=["b", "aaa"])),
        request("free", [5, 6, 7], sampled(20, seed=4, ignore_eos=True)),
    ]


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs"])
@pytest.mark.parametrize("name", ZOO)
def test_a_request_ends_where_nothing_is_left_with_any_guesses(name: str, mode: str) -> None:
    requests = [*contradictory(), *consistent()]
    options: dict[str, Any] = {"processors": PROCESSORS, "tokenizer": LETTERS, "logprobs_mode": mode}
    expected = plain(MODEL, requests, **options)
    texts = [[5, 6, 7, *result.token_ids] for result in expected.results.values()]
    drafter = Recording(ZOO[name](Habitat(MODEL, texts, page_size=4, k=4)), 4, MODEL)
    engine = make_engine(MODEL, drafter, num_pages=24, max_model_len=48, budget=20, **options)
    found = run(engine, requests)
    assert found.answers == expected.answers
    for one in contradictory():
        after = CONTRADICTIONS[one.request_id.split(" ", 1)[1]][1]
        for index in range(one.params.n):
            result = found.results[one.request_id, index]
            assert (result.finish_reason, result.last.stop_reason) == ("error", NOTHING_ALLOWED)
            assert len(result.token_ids) == after
    assert found["masked"].finish_reason == found["free"].finish_reason == "length"


@pytest.mark.parametrize("rule", ["block", "coupled"])
def test_every_exact_rule_ends_it_at_the_same_token(rule: str) -> None:
    requests = [*contradictory(), *consistent()]
    options: dict[str, Any] = {"processors": PROCESSORS, "tokenizer": LETTERS}
    expected = plain(MODEL, requests, **options)
    engine = make_engine(MODEL, self_draft(MODEL), verify=load_verifier(rule), **options)
    assert run(engine, requests).answers == expected.answers


# --- known before it runs ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        {"allowed_token_ids": [B], "bad_words": ["b"]},
        {"allowed_token_ids": [A, B], "bad_words": ["a", "b", "ab"]},
        {"allowed_token_ids": [B, EOS], "bad_words": ["b"], "min_tokens": 1},
        {"allowed_token_ids": [B, C], "bad_words": ["b"], "min_tokens": 1, "stop_token_ids": [C]},
    ],
)
def test_what_leaves_no_first_token_is_refused(asked: dict[str, Any]) -> None:
    engine = make_engine(MODEL, tokenizer=LETTERS)
    with pytest.raises(InvalidRequest, match="allowed_token_ids leaves no token") as caught:
        engine.check(request("a", [5], greedy(**asked)))
    assert caught.value.param == "allowed_token_ids"


@pytest.mark.parametrize(
    "asked",
    [
        {"allowed_token_ids": [B, C], "bad_words": ["b"]},
        {"allowed_token_ids": [B], "bad_words": ["bbbb"]},
        {"allowed_token_ids": [B, EOS], "bad_words": ["b"]},
        {"allowed_token_ids": [EOS], "bad_words": ["b"], "min_tokens": 3},  # nothing else: it may end
        {"bad_words": ["b"]},
    ],
)
def test_what_leaves_a_first_token_is_taken(asked: dict[str, Any]) -> None:
    engine = make_engine(MODEL, tokenizer=LETTERS)
    one = request("a", [5], greedy(3, ignore_eos=True, **asked))
    engine.check(one)
    assert run(engine, [one])["a"].finish_reason == "length"


def test_over_http_it_is_a_400_that_says_what_is_wrong() -> None:
    body = {"prompt": "fgh", "temperature": 0, "max_tokens": 12, "allowed_token_ids": [A, B]}
    with serving(deploy()) as server:
        at_once = server.post("/v1/completions", **body, bad_words=["a", "b"])
        later = server.post("/v1/completions", **body, bad_words=["b", "aaa"])
        good = server.post("/v1/completions", **body, bad_words=["b"])
    assert (at_once.status_code, later.status_code, good.status_code) == (400, 400, 200)
    assert at_once.json()["error"]["param"] == "allowed_token_ids"
    assert later.json()["error"]["message"] == NOTHING_ALLOWED
    assert good.json()["choices"][0]["text"] == "a" * 12
