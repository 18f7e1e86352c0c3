"""A request says what its answer may be like: the same text in fewer steps, and counts of what came true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specserve import LLM, SamplingParams
from specserve.draft.chain import ChainDrafter, Member
from specserve.draft.prediction import PredictionDrafter
from specserve.errors import InvalidRequest
from specserve.sampling_params import predicted_content
from specserve.types import Request
from tests.support.deployment import deploy, serving
from tests.support.drafters import Guesser
from tests.support.engine import Run, greedy, letters, make_engine, plain, request, run
from tests.support.server import Running
from tests.support.stub import StubModel
from tests.support.tiny import write_tiny
from tests.support.traffic import mixed_traffic

MODEL = StubModel()
TEMPLATE = "{{ messages[0].content }}"
GREEDY = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 40, "temperature": 0}
GREEDY |= {"ignore_eos": True}
NO_GUESS = Guesser(lambda _: [])


def content(text: str | list[dict[str, Any]]) -> dict[str, Any]:
    return {"prediction": {"type": "content", "content": text}}


def with_prediction(one: Request, ids: list[int]) -> Request:
    return Request(one.request_id, one.prompt_token_ids, one.params, one.arrival, predicted_token_ids=ids)


def predicting(k: int = 8, **options: Any) -> Any:
    drafter = ChainDrafter([Member("prediction", PredictionDrafter(), k)])
    return make_engine(MODEL, drafter, k=k, **options)


def counts(found: Run, name: str) -> tuple[int, int]:
    """Accepted and drafted tokens of a request's prediction."""
    spec = found[name].last.spec_decode_metrics
    assert spec is not None
    own = spec.by_source["prediction"]
    return own.num_accepted_draft_tokens, own.num_draft_tokens


# --- in the engine ------------------------------------------------------------------------------


def test_a_right_prediction_is_kept_whole_and_a_changed_line_costs_a_step_or_two() -> None:
    [one] = [request("a", [1, 2, 3], greedy(80, ignore_eos=True))]
    right = plain(MODEL, [one])["a"].token_ids
    found = run(predicting(), [with_prediction(one, right)])
    assert found["a"].token_ids == right
    accepted, drafted = counts(found, "a")
    assert accepted == drafted > 60
    assert len(found.steps) < 12
    changed = [*right[:30], 0, 0, 0, 0, *right[36:]]
    found = run(predicting(), [with_prediction(one, changed)])
    assert found["a"].token_ids == right
    assert counts(found, "a")[0] > 50
    assert len(found.steps) < 25


def test_a_prediction_of_something_else_soon_costs_nothing() -> None:
    one = request("a", [1, 2, 3], greedy(400, ignore_eos=True))
    other = plain(MODEL, [request("b", [9, 9, 4], greedy(400, ignore_eos=True))], num_pages=128)
    engine = predicting(num_pages=128, max_model_len=500)
    found = run(engine, [with_prediction(one, [t ^ 5 for t in other["b"].token_ids])])
    assert found["a"].token_ids == plain(MODEL, [one], num_pages=128)["a"].token_ids
    accepted, drafted = counts(found, "a")
    assert drafted - accepted < 40


@pytest.mark.parametrize("shift", [0, 1, 7])
def test_mixed_traffic_answers_alike_whatever_is_predicted(shift: int) -> None:
    """n > 1, stop strings, penalties, seeds, log-probabilities: predictions right, late, and of others."""
    tokenizer, traffic = letters(), mixed_traffic()
    expected = plain(MODEL, traffic, tokenizer=tokenizer, num_pages=48, page_size=1)
    texts = [expected[one.request_id].token_ids for one in traffic]
    requests = [
        with_prediction(one, [*texts[(i + shift) % len(texts)][shift % 3 :], 5])
        for i, one in enumerate(traffic)
    ]
    engine = predicting(tokenizer=tokenizer, num_pages=24, max_model_len=48)
    found = run(engine, requests)
    assert found.answers == expected.answers
    assert found.num_drafted > 50


def test_ids_outside_the_vocabulary_are_refused() -> None:
    one = with_prediction(request("a", [1], greedy(4)), [3, 32])
    with pytest.raises(InvalidRequest, match="prediction holds token id 32") as caught:
        predicting().check(one)
    assert caught.value.param == "prediction"


def test_a_request_that_wants_no_guesses_gets_none_of_its_prediction_either() -> None:
    for speculation in ({"enabled": False}, {"num_speculative_tokens": 0}):
        one = request("a", [1, 2, 3], greedy(20, ignore_eos=True, speculation=speculation))
        found = run(predicting(), [with_prediction(one, [1, 2, 3])])
        assert found.num_drafted == 0


# --- what a prediction may be -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        (None, ""),
        ("text", "text"),
        ([1, 2], [1, 2]),
        ([], []),
        ({"type": "content", "content": "text"}, "text"),
        (
            {"type": "content", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            "ab",
        ),
    ],
)
def test_a_prediction_is_text_ids_or_openai_s_object(prediction: Any, expected: str | list[int]) -> None:
    assert predicted_content(prediction) == expected


@pytest.mark.parametrize(
    "prediction",
    [
        5,
        ["a"],
        [True],
        {},
        {"content": "a"},
        {"type": "text", "content": "a"},
        {"type": "content"},
        {"type": "content", "content": [1, 2]},
        {"type": "content", "content": ["a"]},
        {"type": "content", "content": [{"type": "image_url", "text": "a"}]},
        {"type": "content", "content": [{"type": "text"}]},
    ],
)
def test_anything_else_is_a_mistake(prediction: Any) -> None:
    with pytest.raises(InvalidRequest, match="prediction must be") as caught:
        SamplingParams(prediction=prediction)
    assert caught.value.param == "prediction"


def test_offline_a_prediction_is_a_sampling_parameter(tmp_path: Path) -> None:
    speculation = {"method": "prediction", "num_speculative_tokens": 8}
    llm = LLM(str(write_tiny(tmp_path)), kv_cache_memory_bytes="1M", speculative_config=speculation)
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
    [without] = llm.generate([[5, 6, 7]], SamplingParams(**options))
    ids, text = without.outputs[0].token_ids, without.outputs[0].text
    assert without.outputs[0].spec_decode_metrics is not None
    assert without.outputs[0].spec_decode_metrics.num_draft_tokens == 0
    for prediction in (ids, text, {"type": "content", "content": text}):
        [found] = llm.generate([[5, 6, 7]], SamplingParams(**options, prediction=prediction))
        assert found.outputs[0].token_ids == ids
        assert found.outputs[0].spec_decode_metrics is not None
        own = found.outputs[0].spec_decode_metrics.by_source["prediction"]
        assert own.num_accepted_draft_tokens > (30 if prediction is ids else 0)


# --- over HTTP ----------------------------------------------------------------------------------


def answered(server: Running, **body: Any) -> tuple[list[str], dict[str, Any]]:
    reply = server.chat(**{**GREEDY, **body})
    return [choice["message"]["content"] for choice in reply["choices"]], reply["usage"]


@pytest.fixture(scope="module")
def server() -> Any:
    with serving(deploy(k=8, drafter=NO_GUESS), chat_template=TEMPLATE) as running:
        yield running


def test_usage_counts_what_came_true(server: Running) -> None:
    [text], usage = answered(server)
    assert "completion_tokens_details" not in usage
    again, usage = answered(server, **content(text))
    assert again == [text]
    details = usage["completion_tokens_details"]
    assert details["rejected_prediction_tokens"] == 0
    assert details["accepted_prediction_tokens"] > 30
    parts = [{"type": "text", "text": text[:9]}, {"type": "text", "text": "!!!" + text[12:]}]
    again, usage = answered(server, **content(parts))
    assert again == [text]
    assert usage["completion_tokens_details"]["rejected_prediction_tokens"] > 0
    assert usage["completion_tokens_details"]["accepted_prediction_tokens"] > 10


def test_tokens_of_a_prediction_that_a_stop_cuts_off_are_not_accepted(server: Running) -> None:
    [text], _ = answered(server)
    stop = text[20:22]
    cut, usage = answered(server, stop=[stop], **content(text))
    assert cut == [text[: text.index(stop)]]
    details = usage["completion_tokens_details"]
    assert 0 < details["accepted_prediction_tokens"] < usage["completion_tokens"]
    assert details["rejected_prediction_tokens"] > 0


def test_several_choices_share_a_prediction(server: Running) -> None:
    body = {"n": 3, "temperature": 0.8, "seed": 5}
    texts, _ = answered(server, **body)
    again, usage = answered(server, **body, **content(texts[1]))
    assert again == texts
    assert usage["completion_tokens_details"]["accepted_prediction_tokens"] > 20


def test_a_stream_ends_with_the_same_usage(server: Running) -> None:
    [text], _ = answered(server)
    _, usage = answered(server, **content(text))
    body = {**GREEDY, **content(text), "stream": True, "stream_options": {"include_usage": True}}
    events = server.post("/v1/chat/completions", **body).text.split("\n\n")[:-2]
    chunks = [json.loads(event[6:]) for event in events]
    shown = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"]]
    assert "".join(shown) == text
    assert chunks[-1]["usage"]["completion_tokens_details"] == usage["completion_tokens_details"]


def test_completions_take_one_too(server: Running) -> None:
    body = {"prompt": ["abc", "cba"], "max_tokens": 20, "temperature": 0, "ignore_eos": True}
    texts = [choice["text"] for choice in server.complete(**body)["choices"]]
    reply = server.complete(**body, **content(texts[1]))
    assert [choice["text"] for choice in reply["choices"]] == texts
    assert reply["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] >= 15


def test_the_request_s_figures_name_the_source(server: Running) -> None:
    [text], _ = answered(server)
    reply = server.chat(**GREEDY, **content(text), speculation={"num_speculative_tokens": 4})
    spec = reply["metrics"]["speculative_decoding"]
    assert list(spec["by_source"]) == ["prediction"]
    assert spec["by_source"]["prediction"]["num_draft_tokens"] == spec["num_draft_tokens"] > 0


@pytest.mark.parametrize(
    ("prediction", "param"),
    [
        ("text", "prediction"),
        ([1, 2], "prediction"),
        ({}, "prediction.type"),
        ({"type": "text", "content": "a"}, "prediction.type"),
        ({"type": "content"}, "prediction.content"),
        ({"type": "content", "content": None}, "prediction.content"),
        ({"type": "content", "content": 5}, "prediction.content"),
        ({"type": "content", "content": [{"type": "image_url", "image_url": {}}]}, "prediction.content"),
        ({"type": "content", "content": [{"type": "text", "text": 5}]}, "prediction.content"),
    ],
)
def test_what_is_no_prediction_is_a_400(server: Running, prediction: Any, param: str) -> None:
    reply = server.post("/v1/chat/completions", **GREEDY, prediction=prediction)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].startswith(param)
    assert param in reply.json()["error"]["message"]


@pytest.mark.parametrize("prediction", [None, {"type": "content", "content": ""}])
def test_nothing_predicted_is_no_mistake(server: Running, prediction: Any) -> None:
    _, usage = answered(server, prediction=prediction)
    none = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    assert usage.get("completion_tokens_details") == (none if prediction else None)


def test_a_server_without_speculation_answers_the_same_and_counts_nothing(server: Running) -> None:
    [text], _ = answered(server)
    with serving(deploy(k=0), chat_template=TEMPLATE) as plain_server:
        again, usage = answered(plain_server, **content(text))
    assert again == [text]
    none = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    assert usage["completion_tokens_details"] == none
