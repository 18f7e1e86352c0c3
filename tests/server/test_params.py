"""From bodies to sampling parameters: defaults, clamps, spellings."""

from __future__ import annotations

from typing import Any

import pytest

from specserve.errors import InvalidRequest
from specserve.server.params import as_written, sampling_params
from specserve.server.schema import ChatBody, CompletionBody
from specserve.types import SamplingParams

CONFIG = {"temperature": 0.3, "top_k": 20, "repetition_penalty": 1.1, "max_tokens": 77}


def completion(defaults: dict[str, Any] | None = None, **fields: Any) -> SamplingParams:
    return sampling_params(CompletionBody.model_validate({"prompt": "x", **fields}), defaults or {})


def chat(defaults: dict[str, Any] | None = None, **fields: Any) -> SamplingParams:
    messages = [{"role": "user", "content": "x"}]
    return sampling_params(ChatBody.model_validate({"messages": messages, **fields}), defaults or {})


def test_without_anything_the_defaults_are_openai_s() -> None:
    assert completion() == SamplingParams(max_tokens=16)
    assert chat() == SamplingParams(max_tokens=None)


def test_a_null_takes_the_generation_config() -> None:
    params = chat(CONFIG, temperature=None, top_k=5)
    assert (params.temperature, params.top_k, params.repetition_penalty) == (0.3, 5, 1.1)


def test_zero_is_given_and_no_null() -> None:
    assert chat(CONFIG, temperature=0).temperature == 0.0


def test_the_generation_config_may_limit_a_chat_but_not_a_completion() -> None:
    assert chat(CONFIG).max_tokens == 77
    assert chat(CONFIG, max_tokens=500).max_tokens == 500
    assert completion(CONFIG).max_tokens == 16


def test_max_completion_tokens_wins_over_its_old_name() -> None:
    assert chat(max_tokens=5, max_completion_tokens=9).max_tokens == 9


def test_seed_minus_one_is_no_seed() -> None:
    assert completion(seed=-1).seed is None
    assert completion(seed=0).seed == 0


def test_logit_bias_has_string_keys_and_is_clamped() -> None:
    assert completion(logit_bias={"5": 250.0, "7": -1.5}).logit_bias == {5: 100.0, 7: -1.5}


@pytest.mark.parametrize("key", ["a", "-1", "1.0", "", "١", "9" * 19])
def test_a_logit_bias_key_that_is_no_id_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest, match="logit_bias"):
        completion(logit_bias={key: 1.0})


def test_logprobs_of_both_endpoints() -> None:
    assert completion(logprobs=0).logprobs == 0
    assert completion().logprobs is None
    assert chat(logprobs=True).logprobs == 0
    assert chat(logprobs=True, top_logprobs=3).logprobs == 3
    assert chat(logprobs=False).logprobs is None
    with pytest.raises(InvalidRequest, match="top_logprobs needs logprobs"):
        chat(top_logprobs=3)


def test_an_echo_wants_the_prompt_s_logprobs_too() -> None:
    assert completion(echo=True, logprobs=2).prompt_logprobs == 2
    assert completion(echo=True).prompt_logprobs is None
    assert completion(echo=True, logprobs=2, prompt_logprobs=5).prompt_logprobs == 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("n", 10**6),
        ("temperature", 2.5),
        ("top_p", 0.0),
        ("max_tokens", 0),
        ("stop", ["a"] * 5),
        ("stop", [""]),
        ("min_tokens", 20),
        ("logprobs", -2),
    ],
)
def test_values_out_of_range_name_the_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=field):
        completion(**{field: value})


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"logprobs": True, "top_logprobs": -2}, "top_logprobs", "^top_logprobs must be an integer"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "^max_completion_tokens must be"),
        ({"max_tokens": 0}, "max_tokens", "^max_tokens must be"),
        (
            {"max_completion_tokens": 3, "min_tokens": 4},
            "min_tokens",
            "^min_tokens must be at most max_completion_tokens=3, got 4",
        ),
        ({"prompt_logprobs": -2}, "prompt_logprobs", "^prompt_logprobs must be"),
    ],
)
def test_a_chat_is_refused_by_the_names_of_its_own_fields(
    fields: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        chat(**fields)
    assert caught.value.param == param


def test_flags_and_quoted_values_keep_their_names() -> None:
    body = ChatBody.model_validate({"messages": [{}]})
    message = "logprobs=21 is more than --max-logprobs 20; extra_args={'logprobs': 1}"
    with pytest.raises(InvalidRequest) as caught, as_written(body):
        raise InvalidRequest(message, "logprobs")
    assert str(caught.value) == ("top_logprobs=21 is more than --max-logprobs 20; vllm_xargs={'logprobs': 1}")


def test_everything_else_arrives_as_given() -> None:
    given = {
        "n": 2, "min_tokens": 3, "stop": ["a"], "stop_token_ids": [4], "include_stop_str_in_output": True,
        "ignore_eos": True, "allowed_token_ids": [1], "bad_words": ["b"], "skip_special_tokens": False,
        "truncate_prompt_tokens": 9, "min_p": 0.1, "frequency_penalty": -1.0,
    }  # fmt: skip
    params = completion(**given)
    assert {name: getattr(params, name) for name in given} == given
