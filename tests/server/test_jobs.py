"""From a body's bytes to requests for the engine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from specserve.errors import InvalidRequest
from specserve.server.errors import ApiError
from specserve.server.jobs import Job, Jobs, Origin
from specserve.server.schema import ChatBody, CompletionBody, TokenizeBody
from specserve.text.tokenizer import Tokenizer
from specserve.types import Request
from tests.support.fake_engine import FakeEngine
from tests.support.server import make_served

ENGINE = FakeEngine()
ORIGIN = Origin("abc", "", arrival=1.5)
USER = {"role": "user", "content": "hi"}


def jobs(**served: Any) -> Jobs:
    return Jobs(make_served(ENGINE, max_model_len=20, **served), ENGINE.check, max_sequences=8)


def completion(maker: Jobs | None = None, origin: Origin = ORIGIN, **fields: Any) -> Job:
    body = json.dumps({"prompt": "x", "max_tokens": 4, **fields}).encode()
    return (maker or jobs()).make(CompletionBody, body, origin)


def chat(maker: Jobs | None = None, **fields: Any) -> Job:
    body = json.dumps({"messages": [USER], **fields}).encode()
    return (maker or jobs()).make(ChatBody, body, ORIGIN)


def prompts(job: Job) -> list[str]:
    return [bytes(request.prompt_token_ids).decode() for request in job.requests]


def test_one_request_per_prompt_with_ids_of_its_own() -> None:
    job = completion(prompt=["ab", "c"], n=2)
    assert prompts(job) == ["ab", "c"]
    assert len({request.request_id for request in job.requests}) == 2
    assert {request.arrival for request in job.requests} == {1.5}
    assert not job.is_single


def test_the_same_name_twice_makes_different_requests() -> None:
    maker, named = jobs(), Origin("mine", "", 0.0, is_named=True)
    first, second = completion(maker, named), completion(maker, named)
    assert first.reply_id == second.reply_id == "cmpl-mine"
    assert first.requests[0].request_id != second.requests[0].request_id


def test_the_header_names_the_reply_before_the_body_does() -> None:
    assert completion(request_id="body").reply_id == "cmpl-body"
    assert (
        completion(origin=Origin("header", "", 0.0, is_named=True), request_id="body").reply_id
        == "cmpl-header"
    )
    assert chat(request_id="body").reply_id == "chatcmpl-body"


def test_a_chat_is_rendered_by_the_template_and_nothing_is_added() -> None:
    assert prompts(chat()) == ["user: hi\n> "]


def test_content_may_be_a_list_of_text_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert prompts(chat(messages=[{"role": "user", "content": parts}])) == ["user: a\nb\n> "]


def test_other_parts_are_refused() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    with pytest.raises(InvalidRequest, match="image_url"):
        chat(messages=[{"role": "user", "content": [image]}])


def test_a_message_without_a_role_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="role"):
        chat(messages=[{"content": "hi"}])


def test_the_last_message_may_be_continued() -> None:
    told = [USER, {"role": "bot", "content": "So"}]
    job = chat(messages=told, add_generation_prompt=False, continue_final_message=True)
    assert prompts(job) == ["user: hi\nbot: So"]
    with pytest.raises(InvalidRequest, match="exclude each other"):
        chat(messages=told, continue_final_message=True)


def test_a_template_in_a_request_needs_trust() -> None:
    with pytest.raises(InvalidRequest, match="--trust-request-chat-template"):
        chat(chat_template="x")
    assert prompts(chat(jobs(trusts_request_templates=True), chat_template="x")) == ["x"]
    assert prompts(chat(jobs(chat_template="y"))) == ["y"]


def test_template_variables_come_from_the_request() -> None:
    template = "{{ tone }} {{ documents[0] }} {{ reasoning_effort }}"
    job = chat(
        jobs(chat_template=template),
        chat_template_kwargs={"tone": "dry"},
        documents=["d"],
        reasoning_effort="low",
    )
    assert prompts(job) == ["dry d low"]


def test_a_prompt_and_its_reply_must_fit_into_the_context() -> None:
    completion(prompt="p" * 16)
    with pytest.raises(InvalidRequest) as caught:
        completion(prompt="p" * 17)
    assert "maximum context length is 20 tokens" in str(caught.value)
    assert "17 prompt tokens" in str(caught.value)
    assert "4 requested completion tokens" in str(caught.value)
    assert caught.value.param == "prompt"


def test_without_max_tokens_one_token_must_fit() -> None:
    completion(prompt="p" * 19, max_tokens=None)
    with pytest.raises(InvalidRequest, match="at least one completion token"):
        completion(prompt="p" * 20, max_tokens=None)


class Counting:
    """A tokenizer that counts the characters it is given."""

    def __init__(self) -> None:
        self.num_characters = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(ENGINE.tokenizer, name)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        self.num_characters += len(text)
        return ENGINE.tokenizer.encode(text, add_special_tokens)


@pytest.fixture
def counting() -> Counting:
    return Counting()


def counted(counting: Counting, **served: Any) -> Jobs:
    made = replace(make_served(ENGINE, max_model_len=20, **served), tokenizer=cast(Tokenizer, counting))
    return Jobs(made, ENGINE.check, max_sequences=8)


def test_a_prompt_far_too_long_is_refused_without_tokenising_it(counting: Counting) -> None:
    """The longest token, `</s>`, has four characters; the context has 20 tokens."""
    maker = counted(counting)
    with pytest.raises(InvalidRequest, match=r" 20 prompt tokens and 4 requested completion tokens do not"):
        completion(maker, prompt="</s>" * 20)
    assert counting.num_characters == 80
    with pytest.raises(InvalidRequest, match="; more than 20 prompt tokens and 4 requested") as caught:
        completion(maker, prompt="</s>" * 20 + "p")
    assert counting.num_characters == 80
    assert caught.value.param == "prompt"


def test_a_chat_far_too_long_is_refused_without_tokenising_it(counting: Counting) -> None:
    maker = counted(counting, chat_template="{{ messages[0].content }}")
    with pytest.raises(InvalidRequest, match=r"; 80 prompt tokens and at least one"):
        chat(maker, messages=[{"role": "user", "content": "p" * 80}])
    assert counting.num_characters == 80
    with pytest.raises(InvalidRequest, match="; more than 20 prompt tokens") as caught:
        chat(maker, messages=[{"role": "user", "content": "p" * 81}])
    assert counting.num_characters == 80
    assert caught.value.param == "messages"


@pytest.mark.parametrize("keep", [3, 16, -1])
def test_a_prompt_that_is_cut_to_fit_may_be_of_any_length(keep: int) -> None:
    kept = "p" * (16 if keep == -1 else keep)
    assert prompts(completion(prompt="p" * 500, truncate_prompt_tokens=keep)) == [kept]


def test_a_prompt_that_is_cut_to_more_than_the_context_is_too_long(counting: Counting) -> None:
    for num_characters, words in ((80, "; 21 prompt tokens"), (81, "; more than 20 prompt tokens")):
        with pytest.raises(InvalidRequest, match=words):
            completion(counted(counting), prompt="p" * num_characters, truncate_prompt_tokens=21)
    assert counting.num_characters == 80


def test_no_more_of_a_prediction_is_tokenised_than_the_context_could_hold(counting: Counting) -> None:
    prediction = {"type": "content", "content": "p" * 1000}
    job = completion(counted(counting), prediction=prediction)
    assert job.requests[0].predicted_token_ids == [112] * 20
    assert counting.num_characters == len("x") + 80


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"truncate_prompt_tokens": 3}, "def"),
        ({"truncate_prompt_tokens": 3, "truncation_side": "right"}, "abc"),
        ({"truncate_prompt_tokens": 30}, "abcdef"),
    ],
)
def test_a_prompt_can_be_cut(fields: dict[str, Any], kept: str) -> None:
    assert prompts(completion(prompt="abcdef", **fields)) == [kept]


def test_minus_one_cuts_to_what_the_context_holds_beside_the_reply() -> None:
    assert prompts(completion(prompt="p" * 50, truncate_prompt_tokens=-1)) == ["p" * 16]


def test_a_cut_prompt_is_not_echoed_as_it_was_sent() -> None:
    assert completion(prompt="abcdef", truncate_prompt_tokens=3).prompts[0].text is None


def test_more_sequences_than_the_queue_holds_can_never_be_served() -> None:
    completion(prompt=["x"] * 4, n=2)
    for num_prompts, n, param in ((3, 3, "n"), (9, 1, "prompt")):
        with pytest.raises(InvalidRequest, match="more sequences than the queue holds, 8") as caught:
            completion(prompt=["x"] * num_prompts, n=n)
        assert caught.value.param == param


def test_what_the_engine_refuses_is_told_by_the_client_s_names() -> None:
    def refuse(_: Request) -> None:
        raise InvalidRequest("extra_args={'a': 1} is refused.", "extra_args")

    maker = Jobs(make_served(ENGINE, max_model_len=20), refuse, max_sequences=8)
    with pytest.raises(InvalidRequest, match=r"^vllm_xargs=\{'a': 1\}") as caught:
        completion(maker, vllm_xargs={"a": 1})
    assert caught.value.param == "vllm_xargs"


def test_too_long_a_chat_is_told_by_its_own_cap() -> None:
    with pytest.raises(InvalidRequest, match="or lower max_completion_tokens") as caught:
        chat(max_completion_tokens=19)
    assert caught.value.param == "messages"


def test_what_the_engine_refuses_is_refused_here() -> None:
    for fields in ({"prompt": ""}, {"prompt": [999]}, {"prompt": [-1]}, {"priority": 1}):
        with pytest.raises(InvalidRequest):
            completion(**fields)


def test_an_unknown_model_is_a_404_that_names_the_known_ones() -> None:
    maker = jobs(names=("one", "two"))
    assert completion(maker).model == "one"
    assert completion(maker, model="two").model == "two"
    with pytest.raises(ApiError, match=r"`three` does not exist\. Served here: `one`, `two`") as caught:
        completion(maker, model="three")
    assert (caught.value.status, caught.value.param) == (404, "model")


def test_the_salt_is_part_of_the_tenant() -> None:
    origin = Origin("a", "key", 0.0)
    plain, salted = completion(origin=origin), completion(origin=origin, cache_salt="s")
    assert plain.requests[0].tenant == "key"
    assert salted.requests[0].tenant == "key\0s"


def test_tokenizing_takes_a_prompt_or_messages() -> None:
    assert jobs().tokenize(TokenizeBody(prompt="ab")) == [97, 98]
    assert bytes(jobs().tokenize(TokenizeBody(messages=[USER]))) == b"user: hi\n> "
    for wrong in (TokenizeBody(), TokenizeBody(prompt="a", messages=[USER])):
        with pytest.raises(InvalidRequest, match="either prompt or messages"):
            jobs().tokenize(wrong)
