"""Replies: the stream says what the whole body says, several tokens at a time and never half a character."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specserve.server.jobs import Jobs, Origin
from specserve.server.reply import Reply
from specserve.server.schema import ChatBody, CompletionBody
from specserve.server.wire import dumps
from specserve.types import Output
from tests.support.fake_engine import SCRIPT, FakeEngine
from tests.support.server import make_served

NUM_TOKENS = len(SCRIPT.encode()) + 1
USER = {"role": "user", "content": "hi"}


class Wire:
    """A job run through the fake engine, without threads or HTTP."""

    def __init__(self, engine: FakeEngine, served: dict[str, Any], is_chat: bool, **fields: Any) -> None:
        about = make_served(engine, **served)
        kind: Any = ChatBody if is_chat else CompletionBody
        given = {"messages": [USER]} if is_chat else {"prompt": "ab", "max_tokens": 100}
        raw = json.dumps({**given, **fields}).encode()
        self.job = Jobs(about, engine.check, 64).make(kind, raw, Origin("id", "", 0.0))
        self.reply = Reply(self.job, about)
        for request in self.job.requests:
            engine.add(request)
        self.steps: list[list[Output]] = []
        while engine.has_work:
            self.steps.append(engine.step().outputs)

    def whole(self) -> dict[str, Any]:
        body = self.reply.whole([output for step in self.steps for output in step])
        return json.loads(dumps(body))

    def stream(self) -> bytes:
        return self.reply.start() + b"".join(map(self.reply.chunks, self.steps)) + self.reply.end()

    def chunks(self) -> list[dict[str, Any]]:
        events = self.stream().decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


def whole(
    engine: FakeEngine | None = None,
    served: dict[str, Any] | None = None,
    *,
    chat: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    return Wire(engine or FakeEngine(), served or {}, chat, **fields).whole()


def chunks(
    engine: FakeEngine | None = None,
    served: dict[str, Any] | None = None,
    *,
    chat: bool = False,
    **fields: Any,
) -> list[dict[str, Any]]:
    return Wire(engine or FakeEngine(), served or {}, chat, stream=True, **fields).chunks()


def texts(found: list[dict[str, Any]], index: int = 0) -> list[str]:
    shown = [c for chunk in found for c in chunk["choices"] if c["index"] == index]
    return [c["delta"]["content"] if "delta" in c else c["text"] for c in shown]


def counted(request: Any, index: int) -> str:
    return f"{request.prompt_token_ids} {index}"


# --- whole ------------------------------------------------------------------------------------


def test_a_completion() -> None:
    reply = whole()
    created = reply.pop("created")
    assert isinstance(created, int)
    choice = {"index": 0, "text": SCRIPT, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    assert reply == {
        "id": "cmpl-id",
        "object": "text_completion",
        "model": "fake",
        "choices": [choice],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": NUM_TOKENS,
            "total_tokens": 2 + NUM_TOKENS,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_a_chat() -> None:
    reply = whole(chat=True)
    assert reply["id"] == "chatcmpl-id"
    assert reply["object"] == "chat.completion"
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": SCRIPT}


def test_choices_are_numbered_prompt_by_prompt() -> None:
    reply = whole(FakeEngine(counted), prompt=[[1], [2]], n=2)
    assert [(c["index"], c["text"]) for c in reply["choices"]] == [
        (0, "[1] 0"), (1, "[1] 1"), (2, "[2] 0"), (3, "[2] 1"),
    ]  # fmt: skip
    assert reply["usage"]["prompt_tokens"] == 2


def test_cached_tokens_are_those_of_the_prompts_each_counted_once() -> None:
    reply = whole(FakeEngine(num_cached=1), prompt=[[1, 2], [3, 4]], n=3)
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


def test_a_stop_string_in_the_middle_of_a_block_ends_text_ids_and_usage_together() -> None:
    reply = whole(FakeEngine(block=10), stop="A fo", logprobs=0, return_token_ids=True)
    [choice] = reply["choices"]
    assert choice["text"] == "Grüße! "
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "A fo")
    num_tokens = len("Grüße! A fo".encode())
    assert len(choice["token_ids"]) == len(choice["logprobs"]["tokens"]) == num_tokens
    assert reply["usage"]["completion_tokens"] == num_tokens


def test_an_echo_shows_the_prompt_and_its_logprobs() -> None:
    for choice in whole(echo=True, logprobs=1, n=2)["choices"]:
        assert choice["text"] == "ab" + SCRIPT
        assert choice["logprobs"]["tokens"][:3] == ["a", "b", "G"]
        assert choice["logprobs"]["token_logprobs"][:2] == [None, -0.75]
        assert choice["logprobs"]["text_offset"][:4] == [0, 1, 2, 3]
        assert len(choice["logprobs"]["tokens"]) == NUM_TOKENS + 2


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_without_output_shows_the_prompt_alone(stream: bool) -> None:
    fields = {"echo": True, "logprobs": 1, "max_tokens": 0, "return_token_ids": True}
    if stream:
        *found, last = chunks(stream_options={"include_usage": True}, **fields)
        [shown] = [choice for chunk in found for choice in chunk["choices"]]
        usage = last["usage"]
    else:
        reply = whole(**fields)
        [shown], usage = reply["choices"], reply["usage"]
    assert (shown["text"], shown["token_ids"], shown["prompt_token_ids"]) == ("ab", [], [97, 98])
    assert shown["logprobs"]["tokens"] == ["a", "b"]
    assert shown["logprobs"]["token_logprobs"] == [None, -0.75]
    assert shown["finish_reason"] == "length"
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2, 0)


def test_a_chat_echoes_the_message_it_goes_on_with() -> None:
    start = {"role": "assistant", "content": [{"type": "text", "text": "Well, "}]}
    fields = {
        "messages": [USER, start],
        "add_generation_prompt": False,
        "continue_final_message": True,
        "echo": True,
    }
    assert whole(chat=True, **fields)["choices"][0]["message"]["content"] == "Well, " + SCRIPT
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(chat=True, **fields)]
    assert deltas[0] == {"role": "assistant", "content": "Well, "}
    assert "".join(delta["content"] for delta in deltas) == "Well, " + SCRIPT
    assert whole(chat=True, echo=True)["choices"][0]["message"]["content"] == SCRIPT, "the user spoke last"


def test_an_echo_of_ids_is_their_text() -> None:
    assert whole(echo=True, prompt=[104, 105])["choices"][0]["text"] == "hi" + SCRIPT


def test_token_ids_and_prompt_logprobs_on_request() -> None:
    [choice] = whole(return_token_ids=True, prompt_logprobs=0)["choices"]
    assert choice["prompt_token_ids"] == [97, 98]
    assert choice["token_ids"] == [*SCRIPT.encode(), 256]
    assert choice["prompt_logprobs"] == [None, {"98": {"logprob": -0.75, "rank": 3, "decoded_token": "b"}}]


def test_a_chat_says_what_is_of_the_prompt_once() -> None:
    reply = whole(chat=True, return_token_ids=True, prompt_logprobs=0, n=2)
    assert bytes(reply["prompt_token_ids"]) == b"user: hi\n> "
    assert len(reply["prompt_logprobs"]) == len(reply["prompt_token_ids"])
    assert "prompt_token_ids" not in reply["choices"][0]


def test_the_reply_has_the_role_of_the_message_it_continues() -> None:
    messages = [USER, {"role": "poet", "content": "O"}]
    fields = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
    assert whole(chat=True, **fields)["choices"][0]["message"]["role"] == "poet"
    assert whole(served={"response_role": "bot"}, chat=True)["choices"][0]["message"]["role"] == "bot"


# --- figures ----------------------------------------------------------------------------------


def test_speculation_is_reported_for_single_sequences_if_the_server_does() -> None:
    reported = {"reports_speculation": True}
    spec = whole(FakeEngine(num_spec_tokens=3), reported)["metrics"]["speculative_decoding"]
    assert spec["num_spec_steps"] == sum(spec["acceptance_histogram"])
    assert spec["num_draft_tokens"] == 14
    assert spec["acceptance_histogram_by_draft_length"] == {"2": [0, 1, 6]}
    assert whole(FakeEngine(num_spec_tokens=3), reported, n=2)["metrics"] is None
    assert whole(FakeEngine(num_spec_tokens=3), reported, prompt=["a", "b"])["metrics"] is None
    assert whole(FakeEngine(), reported)["metrics"] is None
    assert "metrics" not in whole(FakeEngine(num_spec_tokens=3))


def test_a_stream_reports_speculation_with_its_usage() -> None:
    reported = {"reports_speculation": True}
    engine = FakeEngine(num_spec_tokens=3)
    found = chunks(engine, reported, stream_options={"include_usage": True})
    assert found[-1]["metrics"]["speculative_decoding"]["num_draft_tokens"] == 14
    assert not any("metrics" in chunk for chunk in found[:-1])


@pytest.mark.parametrize("field", ["timings", "timings_per_token"])
def test_timings_come_on_request(field: str) -> None:
    timings = whole(FakeEngine(num_spec_tokens=3, num_cached=1), **{field: True})["timings"]
    assert (timings["cache_n"], timings["prompt_n"], timings["prompt_ms"]) == (1, 1, 1000.0)
    assert (timings["predicted_n"], timings["predicted_ms"]) == (NUM_TOKENS, 2000.0)
    assert timings["predicted_per_second"] == NUM_TOKENS / 2
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (14, 13)
    assert "timings" not in whole()
    last = chunks(FakeEngine(), **{field: True})[-1]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert "draft_n" not in last["timings"]


# --- streams ----------------------------------------------------------------------------------


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("block", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("stop", [None, "fox", ["zzz", " r"]])
def test_a_stream_says_what_the_whole_says(chat: bool, block: int, stop: Any) -> None:
    fields = {"stop": stop, "logprobs": True if chat else 1, "return_token_ids": True}
    [expected] = whole(FakeEngine(block=block), chat=chat, **fields)["choices"]
    found = chunks(FakeEngine(block=block), chat=chat, **fields)
    parts = [c for chunk in found for c in chunk["choices"]]
    assert "".join(texts(found)) == (expected["message"]["content"] if chat else expected["text"])
    assert [token for c in parts for token in c.get("token_ids", [])] == expected["token_ids"]
    logprobs = [c["logprobs"] for c in parts if c["logprobs"]]
    for key in expected["logprobs"]:
        assert [value for part in logprobs for value in part[key]] == expected["logprobs"][key]
    assert [c["finish_reason"] for c in parts][-1] == expected["finish_reason"]
    assert parts[-1]["stop_reason"] == expected["stop_reason"]


def test_one_chunk_carries_all_tokens_of_a_step_and_no_half_character() -> None:
    assert texts(chunks(FakeEngine(block=3))) == ["Gr", "üß", "e! ", "A f", "ox ", "ran", "."]


def test_a_step_without_text_is_no_chunk_unless_its_tokens_count() -> None:
    assert texts(chunks(FakeEngine(lambda _request, _index: "äö", block=1))) == ["ä", "ö", ""]
    engine = FakeEngine(lambda _request, _index: "äö", block=1)
    assert texts(chunks(engine, return_token_ids=True)) == ["", "ä", "", "ö", ""]


def test_a_chat_begins_with_the_role_of_each_choice() -> None:
    found = chunks(chat=True, n=2)
    roles = [chunk["choices"][0] for chunk in found[:2]]
    assert [(c["index"], c["delta"]) for c in roles] == [
        (0, {"role": "assistant", "content": ""}),
        (1, {"role": "assistant", "content": ""}),
    ]
    assert not any("role" in c["delta"] for chunk in found[2:] for c in chunk["choices"])
    assert "".join(texts(found, 1)) == SCRIPT


def test_usage_comes_last_with_no_choices_and_is_null_before() -> None:
    found = chunks(stream_options={"include_usage": True})
    assert found[-1]["choices"] == []
    assert found[-1]["usage"] == whole()["usage"]
    assert all(chunk["usage"] is None for chunk in found[:-1])
    assert not any("usage" in chunk for chunk in chunks())


def test_usage_can_be_continuous() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    counts = [c["usage"]["completion_tokens"] for c in chunks(FakeEngine(block=5), stream_options=options)]
    assert counts == [5, 10, 15, 20, 20]
    assert all(c["usage"] for c in chunks(FakeEngine(), {"forces_usage": True}))


def test_an_interval_gathers_tokens_but_the_first_and_the_last_come_at_once() -> None:
    found = chunks(FakeEngine(block=1), stream_interval=8, return_token_ids=True)
    assert [len(chunk["choices"][0]["token_ids"]) for chunk in found] == [1, 8, 8, 3]
    slower = chunks(FakeEngine(block=1), {"stream_interval": 10}, stream_interval=2, return_token_ids=True)
    assert [len(chunk["choices"][0]["token_ids"]) for chunk in slower] == [1, 10, 9]


def test_an_echo_comes_in_the_first_chunk() -> None:
    found = chunks(echo=True, logprobs=0)
    assert texts(found)[0] == "abGr"
    assert found[0]["choices"][0]["logprobs"]["tokens"] == ["a", "b", "G", "r", "\ufffd"]
    assert "".join(texts(found)) == "ab" + SCRIPT


def test_a_stream_shows_the_prompt_s_ids_once() -> None:
    found = chunks(return_token_ids=True)
    assert [chunk["choices"][0].get("prompt_token_ids") for chunk in found] == [[97, 98]] + [None] * 6
    found = chunks(chat=True, return_token_ids=True)
    assert [bool(chunk.get("prompt_token_ids")) for chunk in found].count(True) == 1


def test_frames_are_ascii_so_no_client_splits_a_line_inside_one() -> None:
    engine = FakeEngine(lambda _request, _index: "a\u2028b\u0085c\nd\r\n\U0001f642", block=50)
    wire = Wire(engine, {}, False, stream=True)
    stream = wire.stream()
    assert stream.isascii()
    assert len(stream.splitlines()) == len(stream.decode().splitlines()) == 4
    assert texts(Wire(engine, {}, False, stream=True).chunks()) == ["a\u2028b\u0085c\nd\r\n\U0001f642"]


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("fields", [{}, {"stream_options": {"include_usage": True}}, {"stream_interval": 3}])
def test_chunks_that_differ_by_their_text_are_what_they_would_be_one_by_one(
    chat: bool, fields: dict[str, Any]
) -> None:
    text = 'a "quoted" \\ line\n\twith \x00, \u2028, é and \U0001f600 in it, {"index":0}'
    served = {"names": ("\0",)}  # looks like the mark that the text is put in place of
    wire = Wire(FakeEngine(lambda *_: text, block=2), served, chat, stream=True, n=2, **fields)
    slow = Reply(wire.job, wire.reply._served)
    slow._is_text_only = False
    for step in wire.steps:
        assert wire.reply.chunks(step) == slow.chunks(step)
    assert len(wire.reply._frames) == 2
    assert not slow._frames


def test_an_error_is_one_more_event_before_the_end() -> None:
    assert Reply.error({"error": {"code": 500}}) == b'data: {"error":{"code":500}}\n\ndata: [DONE]\n\n'
