"""A streamed reply becomes text, counts and the times of its chunks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specserve.bench.acceptance import Acceptance
from specserve.bench.answers import AnswerReader
from specserve.bench.dataset import Question

QUESTION = Question("hi", "qa", 8)
DONE = "data: [DONE]\n\n"


def event(**fields: Any) -> str:
    return f"data: {json.dumps(fields)}\n\n"


def chat(at: str | None, **rest: Any) -> str:
    delta = {key: value for key, value in {"content": at, **rest}.items() if value is not None}
    return event(choices=[{"delta": delta, "finish_reason": None}])


def read(pieces: list[tuple[float, str]], status: int = 200) -> Any:
    reader = AnswerReader(QUESTION, 1.0)
    for now, piece in pieces:
        reader.take(piece.encode(), now)
    return reader.answer(status, pieces[-1][0])


def test_tpot_is_per_token_and_itl_per_chunk() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 9}
    pieces = [(1.5, event(choices=[{"text": "a"}])), (1.7, event(choices=[{"text": "bcd"}]))]
    pieces += [(2.3, event(choices=[{"text": "e", "finish_reason": "stop"}]))]
    pieces += [(9.0, event(choices=[], usage=usage) + DONE)]
    found = read(pieces)
    assert (found.text, found.error) == ("abcde", "")
    assert (found.num_prompt_tokens, found.num_output_tokens) == (5, 9)
    assert found.ttft == pytest.approx(0.5)
    assert found.latency == pytest.approx(1.3)
    assert found.tpot == pytest.approx(0.8 / 8)
    assert found.itls == pytest.approx([0.2, 0.6])


def test_the_chunk_that_names_the_role_is_no_token() -> None:
    pieces = [(1.1, chat("", role="assistant")), (2.0, chat("a")), (2.5, chat("b")), (2.5, DONE)]
    found = read(pieces)
    assert found.ttft == pytest.approx(1.0)
    assert found.itls == pytest.approx([0.5])


@pytest.mark.parametrize(
    ("delta", "is_news"),
    [
        ({"role": "assistant", "content": "a"}, True),
        ({"role": "assistant", "content": None}, False),
        ({"content": ""}, True),
        ({}, False),
        ({"reasoning_content": "hm"}, True),
        ({"tool_calls": [{"index": 0}]}, True),
    ],
)
def test_what_counts_as_a_chunk(delta: dict[str, Any], is_news: bool) -> None:
    found = read([(2.0, event(choices=[{"delta": delta}])), (3.0, chat("x") + DONE)])
    assert found.chunks == ((2.0, 3.0) if is_news else (3.0,))


def test_events_of_one_packet_have_its_time() -> None:
    found = read([(2.0, chat("a") + chat("b")), (3.0, chat("c") + DONE)])
    assert found.chunks == (2.0, 2.0, 3.0)


def test_without_usage_chunks_are_counted() -> None:
    assert read([(2.0, chat("a") + chat("b") + DONE)]).num_output_tokens == 2


def test_a_replys_own_figures_are_kept() -> None:
    speculation = {"num_draft_tokens": 9, "num_accepted_draft_tokens": 5, "acceptance_histogram": [1, 1, 2]}
    more = event(choices=[], usage={}, metrics={"speculative_decoding": speculation})
    assert read([(2.0, chat("a") + more + DONE)]).acceptance == Acceptance(4, 9, 5, (3, 2))
    more = event(choices=[], metrics={"speculative_decoding": {"num_draft_tokens": 9}})
    assert read([(2.0, chat("a") + more + DONE)]).acceptance is None


@pytest.mark.parametrize(
    ("pieces", "status", "message"),
    [
        ('{"error": {"message": "no such model"}}', 404, "404: no such model"),
        ('{"error": "no"}', 400, "400: no"),
        ("<html>\nBad   gateway", 502, "502: <html> Bad gateway"),
        (chat("a") + event(error={"message": "it broke"}) + DONE, 200, "it broke"),
        (chat("a"), 200, "the stream ended before the answer did"),
        (DONE, 200, "no tokens came: data: [DONE]"),
        ("data: nonsense\n\n", 200, "an event is no JSON object: nonsense"),
    ],
)
def test_what_went_wrong_is_said(pieces: str, status: int, message: str) -> None:
    assert read([(2.0, pieces)], status).error == message


def test_an_end_without_done_is_an_end() -> None:
    assert read([(2.0, event(choices=[{"text": "a", "finish_reason": "stop"}]))]).error == ""
