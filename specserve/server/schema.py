"""Request bodies: validated once, straight from the bytes.

The parser bounds nesting and digits and refuses lone surrogates, so hostile JSON ends here as a 400. Types
are strict. A null means "not given". Unknown fields are ignored with a debug line, except those that would
change the answer and are not built yet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from specserve.errors import InvalidRequest, NotBuiltYet
from specserve.sampling_params import NO_BEAM_SEARCH
from specserve.server.errors import schema_error

logger = logging.getLogger(__name__)

Int = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # what a tensor can hold
Ids = Annotated[list[Int], Field(fail_fast=True)]
Texts = Annotated[list[str], Field(fail_fast=True)]
Messages = Annotated[list[dict[str, Any]], Field(fail_fast=True, min_length=1)]
Prompts = list[str] | list[list[int]]

SPECULATION = {
    "type": "object",
    "properties": {
        "enabled": {"type": "boolean"},
        "num_speculative_tokens": {"type": "integer", "minimum": 0},
        "method": {"type": "string"},
    },
    "additionalProperties": False,
}


def _prompts(value: Any) -> Prompts:
    """One prompt or several, as texts or ids, always as a list of prompts."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return value
        if _are_ids(value):
            return [value]
        if all(isinstance(item, list) and _are_ids(item) for item in value):
            return value
    raise PydanticCustomError(
        "prompt_type", "Input should be a string, a list of token ids, or a non-empty list of those"
    )


def _are_ids(items: list[Any]) -> bool:
    return all(type(item) is int for item in items)  # a bool is no id


class StreamOptions(BaseModel):
    """Of a streamed reply only."""

    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class TextPart(BaseModel):
    """Of a prediction."""

    model_config = ConfigDict(strict=True)

    type: Literal["text"]
    text: str


class Prediction(BaseModel):
    """What the answer may be like; text parts follow each other."""

    model_config = ConfigDict(strict=True)

    type: Literal["content"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class GenerationBody(BaseModel):
    """What completions and chats have in common. `best_of` and `use_beam_search` are read to be refused."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stream_interval: Annotated[Int, Field(ge=1)] | None = None
    n: Int | None = None
    best_of: Int | None = None
    use_beam_search: bool | None = None
    max_tokens: Int | None = None
    min_tokens: Int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: Int | None = None
    stop: str | Texts | None = None
    stop_token_ids: Ids | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: Ids | None = None
    bad_words: Texts | None = None
    prompt_logprobs: Int | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    truncate_prompt_tokens: Int | None = None
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool | None = None
    echo: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    request_id: Annotated[str, Field(pattern=r"^[!-~]{1,256}$")] | None = None
    priority: Int | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    timings: bool | None = None
    timings_per_token: bool | None = None
    vllm_xargs: dict[str, Any] | None = None  # for logits processors
    kv_transfer_params: dict[str, Any] | None = None  # for drafters that write files
    speculation: Annotated[Any, WithJsonSchema(SPECULATION)] = None  # `SamplingParams` looks inside
    prediction: Prediction | None = None


class CompletionBody(GenerationBody):
    """`/v1/completions`."""

    prompt: Annotated[Prompts, PlainValidator(_prompts)]
    logprobs: Int | None = None


class ChatBody(GenerationBody):
    """`/v1/chat/completions`."""

    messages: Messages
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    max_completion_tokens: Int | None = None
    logprobs: bool | None = None
    top_logprobs: Int | None = None
    documents: list[Any] | None = None
    reasoning_effort: str | None = None


class TokenizeBody(BaseModel):
    """Either `prompt` or `messages`."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(BaseModel):
    """Token ids to text."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    tokens: Ids


Body = TypeVar("Body", bound=BaseModel)


def parse(kind: type[Body], raw: bytes) -> Body:
    """The body of a request. Raises `ApiError` naming the fields that do not fit, and `NotBuiltYet`."""
    try:
        body = kind.model_validate_json(raw)
    except ValidationError as error:
        raise schema_error(error) from error
    extra = body.model_extra or {}
    refuse_unbuilt(extra)
    if ignored := extra.keys() - _ASKS_FOR_NOTHING.keys():
        logger.debug("Ignored unknown fields: %s", ", ".join(sorted(ignored)))
    return body


def _is_off(value: Any) -> bool:
    return not value  # false, an empty list, an empty string


def _is_text(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("type") == "text"


# Known fields that are not built yet, and which values of theirs ask for nothing.
_ASKS_FOR_NOTHING: Mapping[str, Callable[[Any], bool]] = {
    "tools": _is_off,
    "tool_choice": lambda value: value in ("none", "auto"),
    "functions": _is_off,
    "function_call": lambda value: value in ("none", "auto"),
    "response_format": _is_text,
    "structured_outputs": _is_off,
    "guided_json": _is_off,
    "guided_regex": _is_off,
    "guided_choice": _is_off,
    "guided_grammar": _is_off,
    "suffix": _is_off,
    "prompt_embeds": _is_off,
    "logprob_token_ids": _is_off,
    "thinking_token_budget": lambda _: False,
    "repetition_detection": _is_off,
    "watermarking": _is_off,
    "modalities": lambda value: value == ["text"],
    "audio": _is_off,
}


def refuse_unbuilt(extra: Mapping[str, Any]) -> None:
    """Raise `NotBuiltYet` for a field that would change the answer if it were built."""
    for name, asks_for_nothing in _ASKS_FOR_NOTHING.items():
        value = extra.get(name)
        if value is not None and not asks_for_nothing(value):
            raise NotBuiltYet(name, name)


def check_search(body: GenerationBody) -> None:
    """Every text that is computed is sent: there is no choosing among more."""
    if body.use_beam_search:
        raise InvalidRequest(f"use_beam_search=true: {NO_BEAM_SEARCH}", "use_beam_search")
    n, best_of = body.n or 1, body.best_of
    if best_of is not None and best_of != n:
        raise InvalidRequest(
            f"best_of={best_of} with n={n} is not offered; ask for n={best_of} with logprobs and choose.",
            "best_of",
        )


def check_stream_options(body: GenerationBody) -> None:
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options needs stream=true.", "stream_options")
    if body.stream and body.prompt_logprobs is not None:
        raise InvalidRequest("prompt_logprobs does not go with stream=true.", "prompt_logprobs")
