"""The thread boundary: one wake-up per step, aborts within a step, no fault that leaves anyone waiting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from threading import Semaphore
from typing import Any

import pytest

from specserve.errors import Overloaded
from specserve.server.bridge import WARM_UP, Bridge
from specserve.server.errors import ApiError
from specserve.server.ticket import Ticket
from specserve.types import Output, Request, SamplingParams, StepStats
from tests.support.fake_engine import SCRIPT, FakeEngine


def ticket(*names: str, n: int = 1, is_stream: bool = True, **params: Any) -> Ticket:
    given = SamplingParams(n=n, max_tokens=100, **params)
    return Ticket([Request(name, [1], given, 0.0) for name in names], is_stream=is_stream)


async def all_of(waiting: Ticket) -> list[Output]:
    outputs: list[Output] = []
    while not (waiting.is_finished and not waiting._pending):
        outputs += await waiting.take()
    return outputs


def with_bridge(
    engine: FakeEngine, body: Callable[[Bridge], Awaitable[None]], record: Any = None, max_requests: int = 8
) -> list[StepStats]:
    """Run `body` with a bridge that is warm. Returns what was recorded."""
    stats: list[StepStats] = []

    async def main() -> None:
        bridge = Bridge(engine, record or stats.append, max_requests=max_requests)
        bridge.start()
        try:
            assert await bridge.ready()
            await body(bridge)
        finally:
            if engine.gate is not None:
                engine.gate.release(1000)
            bridge.stop()
            assert bridge._thread is not None
            assert not bridge._thread.is_alive()

    asyncio.run(asyncio.wait_for(main(), 20))
    return stats


def gated(engine: FakeEngine) -> Semaphore:
    """From the next step on, steps need a permit."""
    engine.gate = Semaphore(0)
    return engine.gate


def test_the_bridge_is_closed_until_it_is_warm_and_the_warm_up_does_not_count() -> None:
    engine = FakeEngine()
    gate = gated(engine)
    stats: list[StepStats] = []

    async def main() -> None:
        bridge = Bridge(engine, stats.append, max_requests=8)
        bridge.start()
        assert not bridge.is_healthy
        with pytest.raises(ApiError, match="warming up") as caught:
            bridge.submit(ticket("a"))
        assert caught.value.status == 503
        assert caught.value.headers["Retry-After"]
        gate.release(10)
        assert await bridge.ready()
        assert bridge.is_healthy
        bridge.stop()

    asyncio.run(main())
    assert [request.request_id for request in engine.requests] == [WARM_UP]
    assert stats == []


def test_outputs_of_all_requests_come_with_one_wake_up_per_step() -> None:
    engine = FakeEngine(block=5)

    async def body(bridge: Bridge) -> None:
        gate = gated(engine)
        tickets = [ticket(f"r{i}") for i in range(5)]
        for one in tickets:
            bridge.submit(one)
        assert bridge._loop is not None
        calls = []
        wake = bridge._loop.call_soon_threadsafe
        bridge._loop.call_soon_threadsafe = lambda *a: calls.append(a) or wake(*a)  # type: ignore[func-returns-value,method-assign]
        before = engine.num_steps
        gate.release(100)
        for one in tickets:
            assert "".join(output.text for output in await all_of(one)) == SCRIPT
        assert len(calls) == engine.num_steps - before

    with_bridge(engine, body)


def test_every_step_is_recorded() -> None:
    async def body(bridge: Bridge) -> None:
        waiting = ticket("a")
        bridge.submit(waiting)
        await all_of(waiting)

    stats = with_bridge(FakeEngine(), body)
    assert sum(step.num_generation_tokens for step in stats) == len(SCRIPT.encode()) + 1
    assert [finished.finish_reason for step in stats for finished in step.finished] == ["stop"]


def test_a_released_request_is_aborted_before_the_next_step_and_counted() -> None:
    engine = FakeEngine()

    async def body(bridge: Bridge) -> None:
        gate = gated(engine)
        gone, other = ticket("gone"), ticket("other")
        bridge.submit(gone)
        bridge.submit(other)
        gate.release(1)
        await gone.take()
        bridge.release(gone)
        assert bridge.num_inside == 1
        gate.release(1000)
        await all_of(other)
        assert engine.aborted == ["gone"]

    stats = with_bridge(engine, body)
    reasons = [finished.finish_reason for step in stats for finished in step.finished]
    assert sorted(reasons) == ["abort", "stop"]


def test_a_finished_request_is_not_aborted() -> None:
    engine = FakeEngine()

    async def body(bridge: Bridge) -> None:
        waiting = ticket("a")
        bridge.submit(waiting)
        await all_of(waiting)
        bridge.release(waiting)
        assert bridge.num_inside == 0

    with_bridge(engine, body)
    assert engine.aborted == []


def test_a_reader_that_is_too_slow_is_aborted() -> None:
    engine = FakeEngine(lambda _request, _index: "long " * 1000)

    async def body(bridge: Bridge) -> None:
        params = SamplingParams(max_tokens=None)
        slow = Ticket([Request("slow", [1], params, 0.0)], max_pending=4)
        bridge.submit(slow)
        await bridge.drain(10)
        with pytest.raises(ApiError, match="waiting to be read"):
            await slow.take()
        last = ticket("last")  # its end comes after the abort command
        bridge.submit(last)
        await all_of(last)

    with_bridge(engine, body)
    assert engine.aborted == ["slow"]


def test_a_full_queue_refuses_all_requests_of_a_ticket_or_none() -> None:
    engine = FakeEngine(max_waiting=3)

    async def body(bridge: Bridge) -> None:
        gate = gated(engine)
        both = ticket("a", "b", n=2)
        bridge.submit(both)
        with pytest.raises(Overloaded):
            await both.take()
        assert engine.aborted == ["a", "b"]
        assert bridge.num_inside == 0
        fits = ticket("c", n=3)
        bridge.submit(fits)
        gate.release(1000)
        assert len({output.index for output in await all_of(fits)}) == 3

    with_bridge(engine, body)


def test_a_request_that_breaks_the_admission_ends_alone(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(lambda request, _index: "" if request.request_id != "bad" else 1 / 0)  # type: ignore[return-value]

    async def body(bridge: Bridge) -> None:
        bad, good = ticket("bad"), ticket("good")
        bridge.submit(bad)
        bridge.submit(good)
        with pytest.raises(ZeroDivisionError):
            await bad.take()
        assert (await all_of(good))[-1].finish_reason == "stop"

    with_bridge(engine, body)
    assert "could not be added" in caplog.text


def test_places_are_bounded() -> None:
    async def body(bridge: Bridge) -> None:
        with bridge.place(), bridge.place():
            assert bridge.num_inside == 2
            with pytest.raises(Overloaded, match="All 2 places"), bridge.place():
                pass
        assert bridge.num_inside == 0

    with_bridge(FakeEngine(), body, max_requests=2)


def test_a_failed_step_ends_its_requests_and_the_server_lives_on(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()

    async def body(bridge: Bridge) -> None:
        engine.step_error = RuntimeError("a bad row")
        hit = ticket("hit")
        bridge.submit(hit)
        with pytest.raises(ApiError) as caught:
            await hit.take()
        assert caught.value.status == 500
        assert "bad row" not in caught.value.message
        assert bridge.is_healthy
        after = ticket("after")
        bridge.submit(after)
        assert (await all_of(after))[-1].finish_reason == "stop"

    stats = with_bridge(engine, body)
    reasons = [finished.finish_reason for step in stats for finished in step.finished]
    assert reasons == ["error", "stop"]
    assert "A step failed" in caplog.text
    assert "a bad row" in caplog.text


@pytest.mark.parametrize("where", ["fail", "nobody"])
def test_a_dead_thread_fails_everyone_and_closes_the_bridge(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = FakeEngine()

    async def body(bridge: Bridge) -> None:
        gate = gated(engine)
        engine.step_error = RuntimeError("a bad row")
        if where == "fail":
            engine.fail_error = RuntimeError("cannot even fail")
        if where == "nobody":
            engine.fail = lambda _: []  # type: ignore[method-assign]
        running, queued = ticket("running"), ticket("queued", is_stream=False)
        bridge.submit(running)
        bridge.submit(queued)
        gate.release(1000)
        for one in (running, queued):
            with pytest.raises(ApiError) as caught:
                await one.take()
            assert caught.value.status == 500
        assert not bridge.is_healthy
        assert bridge.num_inside == 0
        with pytest.raises(ApiError, match="died") as refused:
            bridge.submit(ticket("late"))
        assert refused.value.status == 503

    with_bridge(engine, body)
    assert "thread has died" in caplog.text


def test_a_step_that_cannot_be_counted_is_logged_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: StepStats) -> None:
        raise RuntimeError("cannot count")

    async def body(bridge: Bridge) -> None:
        waiting = ticket("a")
        bridge.submit(waiting)
        assert (await all_of(waiting))[-1].finish_reason == "stop"
        assert bridge.is_healthy

    with_bridge(FakeEngine(), body, record=broken)
    assert "could not be counted" in caplog.text


def test_a_failed_warm_up_is_not_ready() -> None:
    engine = FakeEngine()
    engine.step_error = RuntimeError("no memory")

    async def main() -> None:
        bridge = Bridge(engine, lambda _: None, max_requests=8)
        bridge.start()
        assert not await bridge.ready()
        assert not bridge.is_healthy

    asyncio.run(main())


def test_draining_refuses_new_requests_and_finishes_running_ones() -> None:
    engine = FakeEngine()

    async def body(bridge: Bridge) -> None:
        running = ticket("running")
        bridge.submit(running)
        bridge.refuse("The server is shutting down.")
        with pytest.raises(ApiError, match="shutting down"):
            bridge.submit(ticket("late"))
        assert await bridge.drain(10)
        assert [output.finish_reason for output in await all_of(running)][-1] == "stop"

    with_bridge(engine, body)
    assert engine.aborted == []


def test_a_bridge_that_refuses_while_it_warms_up_does_not_open() -> None:
    engine = FakeEngine()
    gate = gated(engine)

    async def main() -> None:
        bridge = Bridge(engine, lambda _: None, max_requests=8)
        bridge.start()
        bridge.refuse("The server is shutting down.")
        gate.release(10)
        assert await bridge.ready()  # the model was fine
        assert not bridge.is_healthy
        with pytest.raises(ApiError, match="shutting down"):
            bridge.submit(ticket("a"))
        bridge.stop()

    asyncio.run(main())


def test_draining_aborts_what_takes_too_long() -> None:
    engine = FakeEngine()

    async def body(bridge: Bridge) -> None:
        gated(engine)
        running = ticket("running", n=2)
        bridge.submit(running)
        assert not await bridge.drain(0)
        assert [output.finish_reason for output in await all_of(running)] == ["abort", "abort"]

    with_bridge(engine, body)
    assert engine.aborted == ["running"]


def test_without_work_there_are_no_steps() -> None:
    engine = FakeEngine()

    async def body(bridge: Bridge) -> None:
        before = engine.num_steps
        bridge.release(ticket("unknown"))
        bridge._commands.put(lambda: None)
        done = asyncio.Event()
        bridge._commands.put(lambda: bridge._call(done.set))
        await done.wait()
        assert engine.num_steps == before

    with_bridge(engine, body)


def test_a_request_that_speculated_is_logged_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def body(bridge: Bridge) -> None:
        waiting = ticket("a")
        bridge.submit(waiting)
        await all_of(waiting)

    with_bridge(FakeEngine(num_spec_tokens=3), body)
    assert "a: draft acceptance rate = 0.92857 (   13 accepted /    14 generated)" in caplog.text
