"""A ticket: outputs in order, bounded for streams, never a wait that nothing ends."""

from __future__ import annotations

import asyncio

import pytest

from specserve.server.errors import ApiError
from specserve.server.ticket import Ticket
from specserve.types import Output, Request, SamplingParams


def requests(*names: str, n: int = 1) -> list[Request]:
    return [Request(name, [1], SamplingParams(n=n), 0.0) for name in names]


def output(name: str = "a", index: int = 0, reason: str | None = None, text: str = "x") -> Output:
    return Output(name, index, [7], text, finish_reason=reason)


async def waiting(ticket: Ticket) -> asyncio.Task[list[Output]]:
    """A task that has begun to wait for the ticket."""
    task = asyncio.create_task(ticket.take())
    await asyncio.sleep(0)
    return task


def test_a_stream_takes_all_that_came_in_order() -> None:
    async def main() -> None:
        ticket = Ticket(requests("a"))
        ticket.put(output(text="1"))
        ticket.put(output(text="2"))
        assert [one.text for one in await ticket.take()] == ["1", "2"]
        task = await waiting(ticket)
        ticket.put(output(text="3"))
        assert [one.text for one in await task] == ["3"]

    asyncio.run(main())


def test_a_whole_reply_wakes_once_at_its_end() -> None:
    async def main() -> None:
        ticket = Ticket(requests("a", n=2), is_stream=False)
        task = await waiting(ticket)
        for one in (output(index=0), output(index=1), output(index=0, reason="stop")):
            ticket.put(one)
            await asyncio.sleep(0)
            assert not task.done()
        ticket.put(output(index=1, reason="length"))
        assert len(await task) == 4

    asyncio.run(main())


def test_a_stream_that_nobody_reads_fails_at_its_bound_and_holds_nothing() -> None:
    ticket = Ticket(requests("a"), max_pending=3)
    for _ in range(10):
        ticket.put(output())
    assert ticket.is_over
    assert not ticket._pending
    with pytest.raises(ApiError, match="4 chunks were waiting") as caught:
        asyncio.run(ticket.take())
    assert caught.value.status == 408


def test_the_bound_grows_with_the_number_of_sequences() -> None:
    ticket = Ticket(requests("a", "b", n=2), max_pending=3)
    for _ in range(12):
        ticket.put(output())
    assert not ticket.is_over


def test_a_whole_reply_has_no_bound_but_its_tokens() -> None:
    ticket = Ticket(requests("a"), is_stream=False, max_pending=3)
    for _ in range(10):
        ticket.put(output())
    assert not ticket.is_over


def test_an_error_wakes_whoever_waits_and_the_first_one_counts() -> None:
    async def main() -> None:
        ticket = Ticket(requests("a"), is_stream=False)
        task = await waiting(ticket)
        ticket.fail(ApiError(503, "first"))
        ticket.fail(ApiError(500, "second"))
        with pytest.raises(ApiError, match="first"):
            await task

    asyncio.run(main())


def test_an_output_with_reason_error_is_a_500() -> None:
    ticket = Ticket(requests("a", "b"))
    ticket.put(output(reason="error"))
    assert ticket.is_over
    assert not ticket.is_finished  # b still runs, and must be aborted
    with pytest.raises(ApiError) as caught:
        asyncio.run(ticket.take())
    assert caught.value.status == 500


def test_abort_ends_the_open_sequences_only() -> None:
    ticket = Ticket(requests("a", n=2))
    ticket.put(output(index=1, reason="stop"))
    ticket.abort()
    reasons = [(one.index, one.finish_reason, one.token_ids) for one in asyncio.run(ticket.take())]
    assert reasons == [(1, "stop", [7]), (0, "abort", [])]
    assert ticket.is_finished
