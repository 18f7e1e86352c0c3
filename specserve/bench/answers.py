"""Answers with their times, however they came, and how a streamed one is read.

TPOT is per token, ITL per chunk: with speculation a chunk holds several tokens, and the two differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specserve.bench.acceptance import Acceptance, from_reply
from specserve.bench.dataset import Question
from specserve.bench.events import EventSplitter

LONGEST_MESSAGE = 300  # characters of an error that is no JSON


@dataclass(frozen=True, slots=True)
class Answer:
    """Times in seconds since the run began: `sent`, `chunks` (each with something new), `ended`.
    `error` says why there is no answer, or only a part of one; `ids` are the tokens, if it tells them."""

    question: Question
    sent: float
    chunks: tuple[float, ...]
    ended: float
    text: str
    num_prompt_tokens: int
    num_output_tokens: int
    acceptance: Acceptance | None = None
    error: str = ""
    ids: tuple[int, ...] | None = None

    @property
    def ttft(self) -> float:
        """Until the first token."""
        return self.chunks[0] - self.sent

    @property
    def latency(self) -> float:
        """Until the last one."""
        return self.ended - self.sent

    @property
    def tpot(self) -> float | None:
        """Per token after the first; None when there is none."""
        if self.num_output_tokens < 2:
            return None
        return (self.latency - self.ttft) / (self.num_output_tokens - 1)

    @property
    def itls(self) -> list[float]:
        """Between one chunk and the next."""
        return [after - before for before, after in zip(self.chunks, self.chunks[1:], strict=False)]


class AnswerReader:
    """Reads one reply. `take` gets its bytes with the time at which they came."""

    def __init__(self, question: Question, sent: float) -> None:
        self._question, self._sent = question, sent
        self._events = EventSplitter()
        self._head = b""  # of what may be an error that is no stream
        self._chunks: list[float] = []
        self._ended = sent
        self._text: list[str] = []
        self._usage: Mapping[str, Any] = {}
        self._acceptance: Acceptance | None = None
        self._error = ""
        self._is_whole = False

    def take(self, data: bytes, now: float) -> None:
        if not self._chunks:
            self._head += data
        for event in self._events.feed(data):
            self._event(event, now)

    def answer(self, status: int, now: float) -> Answer:
        """At the end of the stream."""
        for event in self._events.finish():
            self._event(event, now)
        if not 200 <= status < 300:
            self._error = f"{status}: {error_message(self._head)}"
        elif not self._error and not self._chunks:
            self._error = f"no tokens came: {error_message(self._head)}"
        elif not self._error and not self._is_whole:
            self._error = "the stream ended before the answer did"
        return self._made(self._error)

    def failed(self, error: str) -> Answer:
        """The network gave up."""
        return self._made(error)

    def _made(self, error: str) -> Answer:
        question, text = self._question, "".join(self._text)
        num_prompt, num_output = (self._usage.get(f"{part}_tokens") for part in ("prompt", "completion"))
        return Answer(
            question,
            self._sent,
            tuple(self._chunks),
            self._ended,
            text,
            len(question.ids or ()) if num_prompt is None else int(num_prompt),
            len(self._chunks) if num_output is None else int(num_output),
            self._acceptance,
            error,
        )

    def _event(self, event: str, now: float) -> None:
        if event.strip() == "[DONE]":
            self._is_whole = True
            return
        try:
            found = json.loads(event)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            self._error = self._error or f"an event is no JSON object: {event[:LONGEST_MESSAGE]}"
            return
        if found.get("error"):
            self._error = error_message(event.encode())
        self._usage = found.get("usage") or self._usage
        speculation = (found.get("metrics") or {}).get("speculative_decoding")
        if speculation:
            self._acceptance = from_reply(speculation)
        for choice in found.get("choices") or []:
            self._choice(choice, now)

    def _choice(self, choice: Mapping[str, Any], now: float) -> None:
        delta = choice.get("delta")
        text = choice.get("text") if delta is None else delta.get("content")
        self._text.append(text or "")
        self._is_whole = self._is_whole or choice.get("finish_reason") is not None
        self._ended = now
        if delta is None or _is_news(delta):
            self._chunks.append(now)


def _is_news(delta: Mapping[str, Any]) -> bool:
    """A chat's first chunk may only name the role, its last only the end; neither brings a token. One with
    an empty text does: a token that shows nothing yet."""
    if any(delta.get(name) for name in ("content", "reasoning_content", "reasoning", "tool_calls")):
        return True
    return "content" in delta and not delta.get("role")


def error_message(body: bytes) -> str:
    """The message of an error in OpenAI's shape, or the body's beginning."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return " ".join(text[:LONGEST_MESSAGE].split()) or "nothing"
