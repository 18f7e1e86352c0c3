"""Bodies: hostile JSON is a 400, wrong types name their field, nothing that matters is ignored."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from specserve.errors import InvalidRequest, NotBuiltYet
from specserve.server.errors import ApiError
from specserve.server.schema import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    check_search,
    check_stream_options,
    parse,
)

MESSAGES = [{"role": "user", "content": "hi"}]


def completion(**fields: Any) -> CompletionBody:
    return parse(CompletionBody, json.dumps({"prompt": "x", **fields}).encode())


def chat(**fields: Any) -> ChatBody:
    return parse(ChatBody, json.dumps({"messages": MESSAGES, **fields}).encode())


def refused(raw: bytes | dict[str, Any], kind: type[Any] = CompletionBody) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse(kind, raw if isinstance(raw, bytes) else json.dumps(raw).encode())
    assert caught.value.status == 400
    assert caught.value.kind == "Bad Request"
    return caught.value


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
def test_a_prompt_is_a_text_or_ids_or_a_list_of_those(prompt: Any, prompts: Any) -> None:
    assert completion(prompt=prompt).prompt == prompts


@pytest.mark.parametrize("prompt", [None, 1, [], ["a", 1], [1, "a"], [True], [[1], "a"], [[1.5]], {"a": 1}])
def test_any_other_prompt_is_refused_by_name(prompt: Any) -> None:
    assert refused({"prompt": prompt}).param == "prompt"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{",
        b'{"prompt": "x",}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "\xff"}',
        b'{"prompt": "x", "temperature": NaN}',
        b'{"prompt": "x", "temperature": -Infinity}',
        b'{"prompt": "x", "temperature": 1e999}',
        b'{"prompt": "x", "seed": 9223372036854775808}',
        b'{"prompt": "x", "top_k": ' + b"9" * 5000 + b"}",
        b'{"prompt": "x", "y": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"prompt": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
)
def test_hostile_json_is_a_400(raw: bytes) -> None:
    assert refused(raw).message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", "ten"),
        ("max_tokens", 1.5),
        ("n", True),
        ("temperature", "hot"),
        ("stop", 5),
        ("stop", [1]),
        ("stream", "yes"),
        ("stream_interval", 0),
        ("logit_bias", [1]),
        ("logit_bias", {"1": "a"}),
        ("stop_token_ids", [None]),
        ("cache_salt", ""),
        ("cache_salt", "s" * 1025),
        ("request_id", "two words"),
        ("request_id", "line\n"),
        ("truncation_side", "middle"),
    ],
)
def test_a_wrong_value_names_its_field(field: str, value: Any) -> None:
    error = refused({"prompt": "x", field: value})
    assert error.param is not None
    assert error.param.split(".")[0] == field
    assert field in error.message


def test_a_nested_field_is_named_by_its_path() -> None:
    assert refused({"messages": ["hi"]}, ChatBody).param == "messages.0"
    assert refused({"messages": []}, ChatBody).param == "messages"
    stream_options = {"prompt": "x", "stream_options": {"include_usage": 1}}
    assert refused(stream_options).param == "stream_options.include_usage"


def test_at_most_ten_errors_are_listed() -> None:
    bias = {str(token): "a" for token in range(25)}
    message = refused({"prompt": "x", "logit_bias": bias}).message
    assert message.count("logit_bias.") == 10
    assert message.endswith("and 15 more")


def test_long_lists_stop_at_their_first_error() -> None:
    assert refused({"tokens": [None] * 1000}, DetokenizeBody).message.count("tokens.") == 1


def test_null_is_not_given() -> None:
    nulls = dict.fromkeys(["n", "temperature", "stop", "stream", "tools", "response_format", "logit_bias"])
    assert completion(**nulls).temperature is None


def test_unknown_fields_are_ignored_with_a_debug_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    completion(user="me", wheels=4)
    assert "Ignored unknown fields: user, wheels" in caplog.text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function"}]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("response_format", "json"),
        ("structured_outputs", {"regex": "a"}),
        ("suffix", "end"),
        ("prompt_embeds", "AAAA"),
        ("thinking_token_budget", 0),
        ("modalities", ["text", "audio"]),
    ],
)
def test_what_would_change_the_answer_is_refused_until_it_is_built(field: str, value: Any) -> None:
    with pytest.raises(NotBuiltYet, match=f"{field} is not built yet") as caught:
        chat(**{field: value})
    assert caught.value.param == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", []),
        ("tool_choice", "none"),
        ("response_format", {"type": "text"}),
        ("suffix", ""),
        ("modalities", ["text"]),
    ],
)
def test_values_that_ask_for_nothing_pass(field: str, value: Any) -> None:
    chat(**{field: value})


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        (
            {"use_beam_search": True},
            "use_beam_search",
            "beam search is not offered, .* draw several texts with n",
        ),
        ({"best_of": 4}, "best_of", "best_of=4 with n=1 is not offered; ask for n=4 with logprobs"),
        ({"best_of": 2, "n": 3}, "best_of", "best_of=2 with n=3"),
    ],
)
def test_a_search_among_texts_is_refused_with_what_to_do_instead(
    fields: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        check_search(completion(**fields))
    assert caught.value.param == param


def test_as_many_as_are_asked_for_is_no_search() -> None:
    for fields in ({"best_of": 1}, {"best_of": 3, "n": 3}, {"use_beam_search": False}, {"best_of": None}):
        check_search(completion(**fields))


def test_stream_options_need_a_stream() -> None:
    with pytest.raises(InvalidRequest, match="stream_options"):
        check_stream_options(completion(stream_options={"include_usage": True}))
    check_stream_options(completion(stream=True, stream_options={"include_usage": True}))


def test_prompt_logprobs_do_not_go_with_a_stream() -> None:
    with pytest.raises(InvalidRequest, match="prompt_logprobs"):
        check_stream_options(completion(stream=True, prompt_logprobs=1))
