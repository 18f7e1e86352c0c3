"""What one request may ask of sampling; field names and defaults are vLLM's offline API.

Every parameter works together with speculation. Values are checked here, once; an error names the
parameter, the value and what is allowed.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from specserve.errors import InvalidRequest

GREEDY_BELOW = 1e-5  # a smaller temperature is greedy
MIN_TEMPERATURE = 0.01  # a smaller one that is not greedy is raised to this: logits / T stays finite
MAX_STOP_STRINGS = 4
MAX_BAD_WORDS = 128
MAX_N = 128
TRANSFER, INCLUDE_OUTPUT = "kv_transfer_params", "include_output_tokens"
NO_BEAM_SEARCH = (
    "beam search is not offered, with or without speculation; draw several texts with n and a temperature, "
    "and compare their logprobs."
)


@dataclass(frozen=True, slots=True)
class Speculation:
    """What one request wants of speculation: less than the engine was started with, never more.

    `enabled` False asks for no guesses, whatever the rest says; True insists on a drafter. The drafter still
    learns from the text. `num_speculative_tokens` is the most guesses per step. `method` names a drafter that
    was loaded at start. None leaves the decision to the engine; the text is the same in every case.
    """

    enabled: bool | None = None
    num_speculative_tokens: int | None = None
    method: str | None = None

    def __post_init__(self) -> None:
        if self.enabled is not None and not isinstance(self.enabled, bool):
            raise InvalidRequest(
                f"speculation.enabled must be true or false, got {self.enabled!r}.", "speculation.enabled"
            )
        if self.num_speculative_tokens is not None:
            _integer("speculation.num_speculative_tokens", self.num_speculative_tokens, 0)
        if self.method is not None and (not isinstance(self.method, str) or not self.method):
            raise InvalidRequest(
                f"speculation.method must be the name of a drafter, got {self.method!r}.",
                "speculation.method",
            )

    @classmethod
    def of(cls, value: Speculation | Mapping[str, Any] | None) -> Speculation:
        """From a request's `speculation`. Raises `InvalidRequest` naming the key inside it."""
        if isinstance(value, Speculation):
            return value
        known = [f.name for f in fields(cls)]
        if value is not None and not isinstance(value, Mapping):
            raise InvalidRequest(
                f"speculation must be an object with any of the keys {', '.join(known)}; got {value!r}.",
                "speculation",
            )
        given = dict(value or {})
        for key in given:
            if key not in known:
                raise InvalidRequest(
                    f"speculation has the unknown key {key!r}; known: {', '.join(known)}.",
                    f"speculation.{key}",
                )
        return cls(**given)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Parameters of one request. Raises `InvalidRequest` naming the parameter.

    `temperature` 0 is greedy; `top_k` 0 or -1 is off; `max_tokens` None is as many as the context
    holds; `logprobs` n asks for the chosen token and the n best, -1 for all; `seed` None draws a fresh one;
    `speculation` is a `Speculation` or a mapping of its fields; `prediction` says what the text may be like,
    as text, token ids, or OpenAI's object; `extra_args` is for logits processors, but for
    `kv_transfer_params` in it, which is for drafters that write files.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    speculation: Speculation | Mapping[str, Any] | None = None
    prediction: str | list[int] | Mapping[str, Any] | None = None
    extra_args: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_lengths(self)
        _check_lists(self)
        _check_mappings(self)

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def effective_temperature(self) -> float:
        """0.0 for greedy, else at least `MIN_TEMPERATURE`."""
        return 0.0 if self.is_greedy else max(self.temperature, MIN_TEMPERATURE)

    @property
    def stop_strings(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)


def predicted_content(prediction: Any) -> str | list[int]:
    """A request's `prediction` as text or token ids; empty for none. Raises `InvalidRequest`.

    OpenAI's object has its text in `content`, as a string or as text parts, which follow each other.
    """
    content = prediction
    if isinstance(prediction, Mapping):
        content = prediction.get("content") if prediction.get("type") == "content" else None
        if isinstance(content, list) and content and all(map(_is_text_part, content)):
            content = "".join(part["text"] for part in content)
        content = content if isinstance(content, str) else None
    if prediction is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(type(token) is int for token in content):
        return content
    raise InvalidRequest(
        'prediction must be {"type": "content", "content": a text, or text parts}, a text, or a list of '
        f"token ids; got {reprlib.repr(prediction)}.",
        "prediction",
    )


def _is_text_part(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _number(name: str, value: Any, low: float, high: float, open_low: bool = False) -> None:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not ok or value > high or value < low or (open_low and value == low):
        bracket = "(" if open_low else "["
        upper = "inf)" if high == math.inf else f"{high:g}]"
        raise InvalidRequest(f"{name} must be a number in {bracket}{low:g}, {upper}, got {value!r}.", name)


def _integer(name: str, value: Any, low: int, high: int | None = None) -> None:
    ok = isinstance(value, int) and not isinstance(value, bool)
    if not ok or value < low or (high is not None and value > high):
        upper = "" if high is None else f" and at most {high}"
        raise InvalidRequest(f"{name} must be an integer of at least {low}{upper}, got {value!r}.", name)


def _check_numbers(p: SamplingParams) -> None:
    _number("temperature", p.temperature, 0.0, 2.0)
    _number("top_p", p.top_p, 0.0, 1.0, open_low=True)
    _number("min_p", p.min_p, 0.0, 1.0)
    _number("presence_penalty", p.presence_penalty, -2.0, 2.0)
    _number("frequency_penalty", p.frequency_penalty, -2.0, 2.0)
    _number("repetition_penalty", p.repetition_penalty, 0.0, math.inf, open_low=True)
    _integer("top_k", p.top_k, -1)
    if p.seed is not None:
        _integer("seed", p.seed, -(2**63), 2**63 - 1)


def _check_lengths(p: SamplingParams) -> None:
    _integer("n", p.n, 1, MAX_N)
    if p.n > 1 and p.is_greedy:
        raise InvalidRequest(f"n must be 1 when sampling is greedy (temperature 0), got {p.n}.", "n")
    if p.max_tokens is not None:
        _integer("max_tokens", p.max_tokens, 1)
    _integer("min_tokens", p.min_tokens, 0)
    if p.max_tokens is not None and p.min_tokens > p.max_tokens:
        raise InvalidRequest(
            f"min_tokens must be at most max_tokens={p.max_tokens}, got {p.min_tokens}.", "min_tokens"
        )
    for name in ("logprobs", "prompt_logprobs"):
        if (value := getattr(p, name)) is not None:
            _integer(name, value, -1)
    if p.truncate_prompt_tokens is not None:
        _integer("truncate_prompt_tokens", p.truncate_prompt_tokens, -1)
        if p.truncate_prompt_tokens == 0:
            raise InvalidRequest(
                "truncate_prompt_tokens must be -1 or at least 1, got 0.", "truncate_prompt_tokens"
            )


def _check_lists(p: SamplingParams) -> None:
    stops = p.stop_strings
    if len(stops) > MAX_STOP_STRINGS:
        raise InvalidRequest(f"stop takes at most {MAX_STOP_STRINGS} strings, got {len(stops)}.", "stop")
    if any(not isinstance(s, str) or not s for s in stops):
        raise InvalidRequest("stop must hold non-empty strings.", "stop")
    if stops and not p.detokenize:
        raise InvalidRequest("stop needs detokenize=True; use stop_token_ids instead.", "stop")
    words = p.bad_words or []
    if len(words) > MAX_BAD_WORDS:
        raise InvalidRequest(f"bad_words takes at most {MAX_BAD_WORDS} words, got {len(words)}.", "bad_words")
    if any(not isinstance(w, str) or not w for w in words):
        raise InvalidRequest("bad_words must hold non-empty strings.", "bad_words")
    for name in ("stop_token_ids", "allowed_token_ids"):
        for value in getattr(p, name) or []:
            _integer(name, value, 0)
    if p.allowed_token_ids is not None and not p.allowed_token_ids:
        raise InvalidRequest(
            "allowed_token_ids must not be empty; leave it out to allow all.", "allowed_token_ids"
        )
    for token, bias in (p.logit_bias or {}).items():
        _integer("logit_bias", token, 0)
        _number("logit_bias", bias, -100.0, 100.0)


def _check_mappings(p: SamplingParams) -> None:
    Speculation.of(p.speculation)
    predicted_content(p.prediction)
    if p.extra_args is not None and not isinstance(p.extra_args, Mapping):
        raise InvalidRequest(f"extra_args must be an object, got {p.extra_args!r}.", "extra_args")
    transfer_params(p.extra_args)


def transfer_params(extra_args: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What a request asks of a drafter that writes files; keys that are nobody's here have no effect."""
    given = (extra_args or {}).get(TRANSFER)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidRequest(f"{TRANSFER} must be an object, got {given!r}.", TRANSFER)
    key = f"{TRANSFER}.{INCLUDE_OUTPUT}"
    includes_output = given.get(INCLUDE_OUTPUT)
    if includes_output is not None and not isinstance(includes_output, bool):
        raise InvalidRequest(f"{key} must be true or false, got {includes_output!r}.", key)
    key = f"{TRANSFER}.hidden_states_path"
    if given.get("hidden_states_path") is not None:
        raise InvalidRequest(
            f"{key}={given['hidden_states_path']!r} cannot be chosen: files go to the server's "
            f"shared_storage_path. Leave it out; the reply says where the file is.",
            key,
        )
    return given
