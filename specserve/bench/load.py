"""Sends requests at their times, so many at once as allowed, and collects the answers.

All times are those of the running event loop, so that a loop with a clock of its own replays a run exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from specserve.bench.answers import Answer, AnswerReader
from specserve.bench.dataset import Question
from specserve.bench.wire import Call, Wire


@dataclass(frozen=True, slots=True)
class Load:
    """Answers in the order of their questions, and the seconds from the beginning to the last of them."""

    answers: list[Answer] = field(default_factory=list)
    duration: float = 0.0


async def ask(wire: Wire, question: Question, call: Call, began: float = 0.0) -> Answer:
    """One request; whatever goes wrong is in the answer. The connection is made before its time begins."""
    now = asyncio.get_running_loop().time
    reader = AnswerReader(question, now() - began)
    try:
        line = await wire.connect()
    except OSError as error:
        return reader.failed(f"cannot connect: {error}")
    reader = AnswerReader(question, now() - began)
    try:
        status = await line.exchange(call, lambda data: reader.take(data, now() - began))
    except OSError as error:
        return reader.failed(str(error) or type(error).__name__)
    finally:
        line.close()
    return reader.answer(status, now() - began)


async def run_load(
    wire: Wire,
    requests: Sequence[tuple[Question, Call]],
    arrivals: Sequence[float],
    max_concurrency: int | None,
    on_answer: Callable[[], None] | None = None,
) -> Load:
    """`arrivals` are seconds from now, one per request; one that finds no place waits for it unsent.
    `on_answer` is called after each."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    places = None if max_concurrency is None else asyncio.Semaphore(max_concurrency)

    async def one(question: Question, call: Call) -> Answer:
        async with places or nullcontext():
            answer = await ask(wire, question, call, began)
        if on_answer is not None:
            on_answer()
        return answer

    async with asyncio.TaskGroup() as group:
        tasks = []
        for (question, call), at in zip(requests, arrivals, strict=True):
            if (wait := began + at - loop.time()) > 0:
                await asyncio.sleep(wait)
            tasks.append(group.create_task(one(question, call)))
    return Load([task.result() for task in tasks], loop.time() - began)
