"""Everything a request may ask for, with guesses in flight: over HTTP, whole and streamed, and offline.

The server with a drafter answers what the server without one answers, token for token; ids, text,
log-probabilities and usage of one answer describe the same tokens, also where it is cut inside a block.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any

import pytest

from specserve.draft.base import Drafter
from specserve.engine.build import Deployment
from specserve.errors import InvalidRequest
from specserve.llm import LLM, RequestOutput
from specserve.sampling.processors import load_processors
from specserve.types import SamplingParams
from tests.support.deployment import deploy, serving
from tests.support.engine import EOS, make_engine, request, run
from tests.support.server import Running
from tests.support.stub import StubModel
from tests.support.traffic import sampled
from tests.support.zoo import ZOO, Habitat

MODEL = StubModel()
PROMPT = [1, 2, 3, 1, 2, 3, 1, 2]
OTHER = [5, 4, 3, 2, 1]
DRAWN = {"temperature": 0.8, "seed": 5}

BODIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "choices": {**DRAWN, "n": 3, "max_tokens": 14},
    "prompts and choices": {**DRAWN, "n": 2, "prompt": [PROMPT, OTHER], "max_tokens": 14},
    "drawn": {**DRAWN, "top_k": 9, "top_p": 0.9},
    "hot": {"temperature": 1.5, "min_p": 0.2, "seed": 1},
    "logprobs": {"logprobs": 3},
    "drawn logprobs": {**DRAWN, "logprobs": 2, "n": 2},
    "frequency up": {"frequency_penalty": 2.0},
    "frequency down": {"frequency_penalty": -2.0},
    "presence up": {"presence_penalty": 1.5, **DRAWN},
    "presence down": {"presence_penalty": -1.5, **DRAWN},
    "repetition": {"repetition_penalty": 1.3},
    "repetition down": {"repetition_penalty": 0.7},
    "patient": {"ignore_eos": False, "logit_bias": {str(EOS): 20.0}, "min_tokens": 11},
    "patient with stops": {"stop_token_ids": list(range(0, 31, 2)), "min_tokens": 9},
    "words": {"bad_words": ["b", "ac"], "logit_bias": {"4": -5.0}},
    "allowed": {"allowed_token_ids": list(range(3, 12)), **DRAWN},
    "cut": {"truncate_prompt_tokens": 3},
    "as long as it fits": {"truncate_prompt_tokens": -1},
    "echo": {"echo": True, "logprobs": 1},
    "only echo": {"echo": True, "logprobs": 1, "max_tokens": 0},
    "processed": {"vllm_xargs": {"no_repeats": 5}},
}
WHOLE: dict[str, dict[str, Any]] = {"prompt logprobs": {"prompt_logprobs": 2, "n": 2, **DRAWN}}
DRAFTERS = ["always-right", "always-wrong", "random", "ngram", "cached-lazy"]


def body_of(fields: dict[str, Any]) -> dict[str, Any]:
    given = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, "ignore_eos": True, **fields}
    return given | {"return_token_ids": True}


def deployment(drafter: Drafter | None, mode: str = "raw_logprobs") -> Deployment:
    processors = load_processors(["tests.support.processors:no_repeats"])
    k = 0 if drafter is None else 6
    return deploy(drafter=drafter, k=k, processors=processors, max_model_len=64, logprobs_mode=mode)


def whole(server: Running, fields: dict[str, Any]) -> dict[str, Any]:
    reply = server.complete(**body_of(fields))
    check_whole(reply, fields)
    return comparable(reply)


def comparable(reply: dict[str, Any]) -> dict[str, Any]:
    usage = {name: reply["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return {"choices": reply["choices"], "usage": usage}


def check_whole(reply: dict[str, Any], fields: dict[str, Any]) -> None:
    choices = reply["choices"]
    assert [choice["index"] for choice in choices] == list(range(len(choices)))
    assert sum(len(choice["token_ids"]) for choice in choices) == reply["usage"]["completion_tokens"]
    for choice in choices:
        if "logprobs" in fields:
            num_shown = len(choice["token_ids"]) + (len(PROMPT) if fields.get("echo") else 0)
            assert {len(column) for column in choice["logprobs"].values()} == {num_shown}


def streamed(server: Running, fields: dict[str, Any]) -> dict[str, Any]:
    """What a client puts together from the chunks, in the shape of the whole."""
    more = {"stream": True, "stream_options": {"include_usage": True}}
    events = server.post("/v1/completions", **body_of(fields), **more).text.split("\n\n")[:-2]
    choices: dict[int, dict[str, Any]] = {}
    for event in events[:-1]:
        for part in json.loads(event[6:])["choices"]:
            choice = choices.setdefault(
                part["index"], {**part, "text": "", "token_ids": [], "logprobs": None}
            )
            choice["text"] += part["text"]
            choice["token_ids"] = choice["token_ids"] + part["token_ids"]
            choice |= {"finish_reason": part["finish_reason"], "stop_reason": part["stop_reason"]}
            if part["logprobs"] is not None:
                before = choice["logprobs"] or {name: [] for name in part["logprobs"]}
                choice["logprobs"] = {
                    name: before[name] + column for name, column in part["logprobs"].items()
                }
    reply = {
        "choices": [choices[index] for index in sorted(choices)],
        "usage": json.loads(events[-1][6:])["usage"],
    }
    return comparable(reply)


@cache
def plain(mode: str = "raw_logprobs") -> dict[str, dict[str, Any]]:
    """Answers of the server without speculation, by name; among them those that stop where an answer went."""
    with serving(deployment(None, mode)) as server:
        return {name: whole(server, fields) for name, fields in all_bodies(server).items()}


@cache
def stops() -> dict[str, dict[str, Any]]:
    """Stops that complete inside the greedy answer, wherever a block of six begins."""
    with serving(deployment(None)) as server:
        [choice] = server.complete(**body_of({}))["choices"]
    text, ids = choice["text"], choice["token_ids"]
    found: dict[str, dict[str, Any]] = {}
    for place in range(5, 12):
        for include in (False, True):
            more = {"include_stop_str_in_output": include, "logprobs": 1}
            found[f"string {place} {include}"] = {"stop": [text[place : place + 2], "zz"], **more}
            found[f"id {place} {include}"] = {"stop_token_ids": [ids[place]], **more}
    return found


def all_bodies(_: object = None) -> dict[str, dict[str, Any]]:
    return {**BODIES, **WHOLE, **stops()}


def texts() -> list[list[int]]:
    """Prompts with their answers, for a drafter that knows them beforehand."""
    found = []
    for name, fields in all_bodies().items():
        prompts = fields.get("prompt", [PROMPT])
        answers = plain()[name]["choices"]
        n = len(answers) // len(prompts)
        cut = fields.get("truncate_prompt_tokens", 0)
        for answer in answers:
            prompt = prompts[answer["index"] // n][-cut if cut > 0 else 0 :]
            found.append([*prompt, *answer["token_ids"]])
    return found


def make(name: str, known: Sequence[Sequence[int]]) -> Drafter:
    return ZOO[name](Habitat(MODEL, known, page_size=4, k=6))


@pytest.mark.parametrize("name", DRAFTERS)
def test_over_http_every_feature_answers_as_without_speculation(name: str) -> None:
    with serving(deployment(make(name, texts()))) as server:
        for feature, fields in all_bodies().items():
            assert whole(server, fields) == plain()[feature], feature
            if feature not in WHOLE:
                assert streamed(server, fields) == plain()[feature], feature


@pytest.mark.parametrize("name", DRAFTERS)
def test_guesses_are_in_flight_whatever_a_request_asks_for(name: str) -> None:
    """Otherwise the comparison above says nothing."""
    with serving(deployment(make(name, texts()))) as server:
        for feature, fields in all_bodies().items():
            if {"n", "prompt"} & fields.keys() or feature == "only echo":
                continue  # no figures for several, nothing to guess for a prompt alone
            reply = server.complete(**body_of({"speculation": {}, **fields}))
            check_guesses(name, feature, reply["metrics"]["speculative_decoding"])


def check_guesses(name: str, feature: str, spec: dict[str, Any]) -> None:
    assert spec["num_draft_tokens"] > 0 or name == "ngram", feature
    kept = spec["num_accepted_draft_tokens"] + spec["num_discarded_draft_tokens"]
    if name == "always-wrong":
        assert kept == 0, feature
    elif name == "always-right":
        assert kept > spec["num_draft_tokens"] / 2, feature  # two of its texts may begin alike


@pytest.mark.parametrize("mode", ["processed_logprobs", "raw_logits", "processed_logits"])
def test_every_kind_of_logprobs_is_that_without_speculation(mode: str) -> None:
    features = [all_bodies()[name] for name in ("logprobs", "drawn logprobs", "echo", "prompt logprobs")]
    replies = []
    for drafter in (make("self", []), None):
        with serving(deployment(drafter, mode)) as server:
            replies.append([whole(server, fields | {"frequency_penalty": 0.5}) for fields in features])
    assert replies[0] == replies[1]


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("num_prompt", [1, 4, 5, 41])
def test_a_prompt_with_several_choices_is_computed_once(num_prompt: int, caching: bool) -> None:
    """The others share its full pages and compute the rest of it, their last token at least."""
    prompt = [n % 7 for n in range(num_prompt)]
    engine = make_engine(MODEL, make("ngram", []), caching=caching)
    found = run(engine, [request("a", prompt, sampled(1, n=4))])
    rest = num_prompt - (num_prompt - 1) // 4 * 4
    assert found.total("num_rows") == num_prompt + 3 * rest
    assert len(found.results) == 4


# --- offline ----------------------------------------------------------------------------------


def offline(made: Deployment) -> LLM:
    llm = LLM.__new__(LLM)
    llm._deployment, llm._ids = made, count()
    return llm


def params_of(fields: dict[str, Any]) -> SamplingParams:
    given = {"max_tokens": 20, "temperature": 0, "ignore_eos": True, **fields}
    given.pop("echo", None)
    given.pop("prompt", None)
    given["extra_args"] = given.pop("vllm_xargs", None)
    given["max_tokens"] = given["max_tokens"] or 1
    if "logit_bias" in given:
        given["logit_bias"] = {int(token): bias for token, bias in given["logit_bias"].items()}
    return SamplingParams(**given)


def answers(outs: Sequence[RequestOutput]) -> list[Any]:
    return [
        (
            out.prompt_logprobs,
            [(o.text, o.token_ids, o.logprobs, o.finish_reason, o.stop_reason) for o in out.outputs],
        )
        for out in outs
    ]


@pytest.mark.parametrize("name", DRAFTERS)
def test_offline_every_feature_answers_as_without_speculation_all_at_once(name: str) -> None:
    every = [params_of(fields) for fields in all_bodies().values()]
    prompts = [PROMPT] * len(every)
    expected = offline(deployment(None)).generate(prompts, every)
    found = offline(deployment(make(name, texts()))).generate(prompts, every)
    assert answers(found) == answers(expected)
    for feature, out in zip(all_bodies(), found, strict=True):
        if feature not in ("only echo", "prompts and choices"):
            assert [o.token_ids for o in out.outputs] == [c["token_ids"] for c in plain()[feature]["choices"]]
        for text in out.outputs:
            assert text.logprobs is None or len(text.logprobs) == len(text.token_ids)


def test_a_search_among_texts_is_refused() -> None:
    with serving(deployment(None)) as server:
        for fields in ({"use_beam_search": True, "n": 4}, {"best_of": 4}):
            reply = server.post("/v1/completions", prompt="a", **fields)
            assert reply.status_code == 400
            assert reply.json()["error"]["param"] in fields
    with pytest.raises(InvalidRequest, match="beam_search: beam search is not offered"):
        offline(deployment(None)).beam_search(["a"], None)
