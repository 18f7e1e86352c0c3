"""Flags that belong to one command rather than to engine or server, described like all options."""

from __future__ import annotations

from dataclasses import dataclass

from specserve.config.kinds import COUNT, INTEGER, NUMBER, SWITCH, TEXT, TEXTS
from specserve.config.options import option, settle


@dataclass(frozen=True, slots=True)
class SamplingFlags:
    """Sampling parameters of `generate` and `chat`; what is not given is the model's recommendation."""

    max_tokens: int | None = option(None, COUNT, "most tokens to write", low=1, like="256, chat what fits")
    temperature: float | None = option(None, NUMBER, "0 is greedy", like="the model's")
    top_p: float | None = option(None, NUMBER, "keep the likeliest tokens of this mass", like="the model's")
    top_k: int | None = option(None, INTEGER, "keep this many of the likeliest tokens", like="the model's")
    min_p: float | None = option(
        None, NUMBER, "keep tokens this likely, relative to the best", like="the model's"
    )
    repetition_penalty: float | None = option(None, NUMBER, "above 1: fewer repetitions", like="the model's")
    presence_penalty: float | None = option(None, NUMBER, "above 0: fewer tokens that occurred")
    frequency_penalty: float | None = option(None, NUMBER, "above 0: fewer tokens that occurred often")
    stop: tuple[str, ...] = option((), TEXTS, "strings that end the text")
    ignore_eos: bool = option(False, SWITCH, "go on after the end token")

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, slots=True)
class GenerateFlags:
    """How `generate` shows what it did."""

    stats: bool = option(True, SWITCH, "a closing line with tokens/s and mean acceptance length")

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, slots=True)
class ChatFlags:
    """Whom `chat` talks to, and how it begins."""

    url: str | None = option(
        None, TEXT, "a running server, as http://localhost:8000/v1", like="the model runs in this process"
    )
    model_name: str | None = option(None, TEXT, "which of the server's models", like="its first")
    api_key: str | None = option(None, TEXT, "key for the server", like="OPENAI_API_KEY", secret=True)
    system_prompt: str | None = option(None, TEXT, "first message")
    quick: str | None = option(None, TEXT, "send this one message, print the reply and leave", short="-q")
    stats: bool = option(True, SWITCH, "a closing line per reply with tokens/s and mean acceptance length")

    def __post_init__(self) -> None:
        settle(self)
