"""Log-probabilities in both of OpenAI's formats."""

from __future__ import annotations

import math

from specserve.server.logprobs import (
    Offsets,
    chat_logprobs,
    completion_logprobs,
    finite,
    prompt_logprobs,
    token_name,
)
from specserve.types import Logprob
from tests.support.fake_engine import EOS, byte_tokenizer

TOKENIZER = byte_tokenizer()
A, B, C = map(ord, "abc")


def test_completions_have_four_parallel_lists() -> None:
    entries = [{A: Logprob(-2.0, 3), B: Logprob(-0.5, 1), C: Logprob(-1.0, 2)}]
    shown = completion_logprobs([A], entries, token_name(TOKENIZER, False), Offsets(TOKENIZER, True))
    assert shown == {
        "text_offset": [0],
        "token_logprobs": [-2.0],
        "tokens": ["a"],
        "top_logprobs": [{"b": -0.5, "c": -1.0, "a": -2.0}],
    }


def test_the_first_token_of_a_prompt_has_null() -> None:
    entries = [None, {B: Logprob(-1.0, 1)}]
    shown = completion_logprobs([A, B], entries, token_name(TOKENIZER, False), Offsets(TOKENIZER, True))
    assert shown["token_logprobs"] == [None, -1.0]
    assert shown["top_logprobs"] == [None, {"b": -1.0}]


def test_of_tokens_that_look_alike_the_better_one_is_kept() -> None:
    entries = [{0xC3: Logprob(-3.0, 2), 0xC4: Logprob(-1.0, 1)}]
    shown = completion_logprobs([0xC3], entries, token_name(TOKENIZER, False), Offsets(TOKENIZER, True))
    assert shown["top_logprobs"] == [{"\ufffd": -1.0}]


def test_tokens_can_be_named_by_id() -> None:
    shown = completion_logprobs(
        [A], [{A: Logprob(-1.0, 1)}], token_name(TOKENIZER, True), Offsets(TOKENIZER, True)
    )
    assert shown["tokens"] == ["token_id:97"]


def test_offsets_count_characters_not_tokens() -> None:
    offsets = Offsets(TOKENIZER, skip_special_tokens=True)
    tokens = [*"aé€b".encode(), EOS, A]
    assert [offsets.start_of(token) for token in tokens] == [0, 1, 1, 2, 2, 2, 3, 4, 4]
    shown = Offsets(TOKENIZER, skip_special_tokens=False)
    assert [shown.start_of(token) for token in (EOS, A)] == [0, 4]


def test_chats_have_one_object_per_token_with_exact_bytes() -> None:
    entries = [{0xC3: Logprob(-2.0, 3), B: Logprob(-0.5, 1), C: Logprob(-1.0, 2)}]
    shown = chat_logprobs([0xC3], entries, 2, token_name(TOKENIZER, False), TOKENIZER)
    [token] = shown["content"]
    assert (token["token"], token["logprob"], token["bytes"]) == ("\ufffd", -2.0, [0xC3])
    assert [top["token"] for top in token["top_logprobs"]] == ["b", "c"]


def test_the_chosen_token_is_among_the_top_ones_if_it_is_one() -> None:
    entries = [{B: Logprob(-0.7, 2), A: Logprob(-0.5, 1)}]
    [token] = chat_logprobs([B], entries, 2, token_name(TOKENIZER, False), TOKENIZER)["content"]
    assert [top["token"] for top in token["top_logprobs"]] == ["a", "b"]


def test_no_top_logprobs_were_asked_for() -> None:
    [token] = chat_logprobs([A], [{A: Logprob(-1.0, 1)}], 0, token_name(TOKENIZER, False), TOKENIZER)[
        "content"
    ]
    assert token["top_logprobs"] == []


def test_values_fit_into_json() -> None:
    assert finite(-math.inf) == finite(math.nan) == finite(-10_000.0) == -9999.0
    assert finite(-1.5) == -1.5


def test_prompt_logprobs_are_by_token_id() -> None:
    shown = prompt_logprobs([None, {A: Logprob(-1.0, 1)}], TOKENIZER)
    assert shown == [None, {"97": {"logprob": -1.0, "rank": 1, "decoded_token": "a"}}]
