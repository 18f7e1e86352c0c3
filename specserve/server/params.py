"""From a body to `SamplingParams`: defaults, clamps and the spellings that differ from the offline API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from specserve.errors import InvalidRequest
from specserve.sampling_params import TRANSFER
from specserve.server.schema import ChatBody, CompletionBody, GenerationBody
from specserve.types import SamplingParams

COMPLETION_TOKENS = 16  # OpenAI's default of `max_tokens` for completions; a chat's is what the context holds
MAX_BIAS = 100.0
_NAME = re.compile(r"(?<![\w'-])[a-z_]+(?!\w)")  # no flag, and no value that is quoted

# A null takes the model's generation config, else the default of `SamplingParams`, which is OpenAI's.
_DEFAULTED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_AS_GIVEN = (
    "n",
    "min_tokens",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "allowed_token_ids",
    "bad_words",
    "prompt_logprobs",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "truncate_prompt_tokens",
    "speculation",
)


def asked_tokens(body: GenerationBody) -> int | None:
    """How many tokens the client asked for itself; None when a default decides."""
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        return body.max_completion_tokens
    return body.max_tokens


def shows_only_prompt(body: GenerationBody) -> bool:
    """An echo with `max_tokens` 0 asks about the prompt; a token is drawn all the same, and not shown."""
    return isinstance(body, CompletionBody) and bool(body.echo) and body.max_tokens == 0


def sampling_params(body: GenerationBody, defaults: Mapping[str, Any]) -> SamplingParams:
    """`defaults` is the model's generation config by our names. Raises `InvalidRequest`."""
    given: dict[str, Any] = {name: defaults[name] for name in _DEFAULTED if name in defaults}
    for name in _DEFAULTED + _AS_GIVEN:
        if (value := getattr(body, name)) is not None:
            given[name] = value
    given["max_tokens"] = _max_tokens(body, defaults)
    given["seed"] = None if body.seed == -1 else body.seed
    given["extra_args"] = _extra_args(body)
    given["logprobs"] = _logprobs(body)
    given["prediction"] = body.prediction.text if body.prediction is not None else None
    if body.logit_bias:
        given["logit_bias"] = _bias(body.logit_bias)
    if isinstance(body, CompletionBody) and body.echo and body.prompt_logprobs is None:
        given["prompt_logprobs"] = body.logprobs  # those of the echoed part
    with as_written(body):
        return SamplingParams(**given)


@contextmanager
def as_written(body: GenerationBody) -> Iterator[None]:
    """What is refused inside is told by the names of the client's own fields."""
    try:
        yield
    except InvalidRequest as error:
        names = _written(body)
        message = _NAME.sub(lambda found: names.get(found[0], found[0]), str(error))
        param = names.get(error.param or "", error.param)
        if isinstance(body, ChatBody) and param == "prompt":
            param = "messages"
        raise InvalidRequest(message, param) from error


def _written(body: GenerationBody) -> dict[str, str]:
    """Our names of parameters that this body spells otherwise."""
    names = {"extra_args": "vllm_xargs"}
    if isinstance(body, ChatBody):
        names["logprobs"] = "top_logprobs"
        if body.max_completion_tokens is not None:
            names["max_tokens"] = "max_completion_tokens"
    return names


def _extra_args(body: GenerationBody) -> dict[str, Any] | None:
    if body.kv_transfer_params is None:
        return body.vllm_xargs
    return {**(body.vllm_xargs or {}), TRANSFER: body.kv_transfer_params}


def _max_tokens(body: GenerationBody, defaults: Mapping[str, Any]) -> int | None:
    asked = asked_tokens(body)
    if asked is not None:
        return 1 if shows_only_prompt(body) else asked
    if isinstance(body, CompletionBody):
        return COMPLETION_TOKENS
    limit: int | None = defaults.get("max_tokens")
    return limit


def _logprobs(body: GenerationBody) -> int | None:
    if isinstance(body, CompletionBody):
        return body.logprobs
    if not isinstance(body, ChatBody):
        return None
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise InvalidRequest("top_logprobs needs logprobs=true.", "top_logprobs")
    return None


def _bias(given: Mapping[str, float]) -> dict[int, float]:
    """Ids come as strings, since JSON has no other keys; values are clamped."""
    bias = {}
    for key, value in given.items():
        if not key.isascii() or not key.isdigit() or len(key) > 18:
            raise InvalidRequest(f"logit_bias has the key {key!r}; keys are token ids.", "logit_bias")
        bias[int(key)] = max(-MAX_BIAS, min(MAX_BIAS, value))
    return bias
