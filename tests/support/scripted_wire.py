"""A server that is a script: what each answer says, and how long it takes to say it.

It speaks OpenAI's two APIs as bytes, so that everything behind the socket is what a real run uses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specserve.bench.wire import Call, Line, Wire


@dataclass(frozen=True, slots=True)
class Script:
    """`waits[i]` seconds before chunk i, which brings `tokens[i]` tokens. `more` goes with the usage."""

    waits: Sequence[float]
    tokens: Sequence[int]
    num_prompt_tokens: int = 10
    more: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


def steady(
    num_chunks: int, *, first: float = 0.2, gap: float = 0.05, per_chunk: int = 1, **more: Any
) -> Script:
    """The first chunk after `first` seconds, each further one after `gap`."""
    return Script([first] + [gap] * (num_chunks - 1), [per_chunk] * num_chunks, **more)


class ScriptedWire:
    """`script(number, body)` answers the request that came as the number-th; `metrics` are texts of
    `/metrics`, one per look, the last one again and again."""

    def __init__(
        self, script: Callable[[int, Mapping[str, Any]], Script], metrics: Sequence[str] = ("",)
    ) -> None:
        self.script = script
        self.metrics = list(metrics)
        self.calls: list[Call] = []
        self.num_open = 0

    async def connect(self) -> Line:
        return _ScriptedLine(self)


class _ScriptedLine:
    def __init__(self, wire: ScriptedWire) -> None:
        self._wire = wire

    def close(self) -> None:
        return

    async def exchange(self, call: Call, take: Callable[[bytes], None]) -> int:
        if call.body is None:
            take(self._plain(call.path).encode())
            return 200
        number = len(self._wire.calls)
        self._wire.calls.append(call)
        script = self._wire.script(number, call.body)
        is_chat = "messages" in call.body
        if script.status != 200:
            take(b'{"error": {"message": "no"}}')
            return script.status
        if is_chat:
            take(event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}))
        for at, wait in enumerate(script.waits):
            await asyncio.sleep(wait)
            text = f"{at} "
            end = "length" if at == len(script.waits) - 1 else None
            shown = {"delta": {"content": text}} if is_chat else {"text": text}
            take(event({"choices": [{**shown, "finish_reason": end}]}))
        usage = {"prompt_tokens": script.num_prompt_tokens, "completion_tokens": sum(script.tokens)}
        take(event({"choices": [], "usage": usage, **script.more}) + b"data: [DONE]\n\n")
        return 200

    def _plain(self, path: str) -> str:
        if path == "/v1/models":
            return json.dumps({"data": [{"id": "scripted"}]})
        metrics = self._wire.metrics
        return metrics.pop(0) if len(metrics) > 1 else metrics[0]


def event(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


_: type[Wire] = ScriptedWire
