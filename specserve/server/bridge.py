"""The one thread boundary: requests go to the engine's thread, outputs come back once per step.

    event loop                                  engine thread
    submit(ticket) ── command queue ──▶ add     obey commands, step, obey commands, step, …
    abort(ticket)  ── command queue ──▶ abort
    ticket.take()  ◀── one call_soon_threadsafe per step, all outputs together

Tickets belong to the event loop, the engine to its thread; a command is a closure that runs between two
steps. Without work the engine's thread sleeps in the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Protocol

from specserve.errors import Overloaded, UserError
from specserve.metrics.stats import request_line
from specserve.server.errors import ApiError, unavailable
from specserve.server.ticket import Ticket
from specserve.types import FinishedStats, Output, Request, SamplingParams, StepOutputs, StepStats

logger = logging.getLogger(__name__)

Record = Callable[[StepStats], None]
WARM_UP = ""  # a request without a name: nobody keeps anything of it


class EngineThreadWork(Protocol):
    """What the bridge uses of the engine, all of it on the engine's thread."""

    @property
    def has_work(self) -> bool: ...
    def snapshot(self) -> StepStats: ...
    def add(self, request: Request) -> None: ...
    def abort(self, request_id: str) -> list[FinishedStats]: ...
    def step(self) -> StepOutputs: ...
    def fail(self, error: BaseException) -> list[Output]: ...


class Bridge:
    """Runs `engine` on a thread of its own. `record` is called there, once per step that did something.

    `max_requests` bounds what is inside at once: more are refused before they cost anything. `rejected` is
    called on the event loop for each request that found no place.
    """

    def __init__(
        self,
        engine: EngineThreadWork,
        record: Record,
        *,
        max_requests: int,
        rejected: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._record = record
        self._rejected = rejected
        self._max_requests = max_requests
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._tickets: dict[str, Ticket] = {}  # by request id
        self._num_preparing = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._closed: str | None = "The model is warming up."  # why nothing can be taken
        self._refusal: str | None = None  # why nothing will be taken
        self._idle = asyncio.Event()
        self._ready = asyncio.Event()
        self._idle.set()

    # --- event loop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread and warm up. Call it on the event loop that will submit."""
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    async def ready(self) -> bool:
        """Wait for the warm-up; False when it failed."""
        await self._ready.wait()
        return self._closed is None

    @property
    def is_healthy(self) -> bool:
        """Whether a request could be served now, a full queue apart."""
        return self._closed is None and self._refusal is None

    @property
    def num_inside(self) -> int:
        """HTTP requests being prepared, waiting or running."""
        return self._num_preparing + len(set(self._tickets.values()))

    @contextmanager
    def place(self) -> Iterator[None]:
        """For a request that is being read and tokenised. Raises 503 before that costs anything."""
        self._check_open()
        if self._num_preparing + len(self._tickets) >= self._max_requests:
            self._rejected()
            raise Overloaded(f"All {self._max_requests} places are taken; try again later.")
        self._num_preparing += 1
        try:
            yield
        finally:
            self._num_preparing -= 1

    def submit(self, ticket: Ticket) -> None:
        """Hand all requests of a ticket to the engine, together or not at all. Raises 503; a full queue is
        the ticket's error."""
        self._check_open()
        for request in ticket.requests:
            self._tickets[request.request_id] = ticket
        self._idle.clear()
        self._commands.put(partial(self._add, ticket))

    def release(self, ticket: Ticket) -> None:
        """The client needs nothing more: what still runs is aborted within one step."""
        running = self._forget(ticket)
        if running and not ticket.is_finished:
            self._commands.put(partial(self._abort, running))

    def refuse(self, reason: str) -> None:
        """Take no more requests; those inside go on."""
        self._refusal = self._refusal or reason

    async def drain(self, seconds: float) -> bool:
        """Wait until nothing runs, then end what still does with reason "abort". False if that was needed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)
        late = set(self._tickets.values())
        for ticket in late:
            running = self._forget(ticket)
            ticket.abort()
            self._commands.put(partial(self._abort, running))
        return not late

    def stop(self, seconds: float = 5.0) -> None:
        """End the thread after its present step. One that hangs is left behind; it is a daemon."""
        self.refuse("The server is stopping.")
        self._commands.put(_stop)
        if self._thread is not None:
            self._thread.join(seconds)

    def _check_open(self) -> None:
        if (reason := self._refusal or self._closed) is not None:
            raise unavailable(reason)

    def _forget(self, ticket: Ticket) -> list[str]:
        ids = [request.request_id for request in ticket.requests]
        running = [request_id for request_id in ids if self._tickets.pop(request_id, None) is not None]
        if not self._tickets:
            self._idle.set()
        return running

    def _deliver(self, outputs: list[Output]) -> None:
        for output in outputs:
            ticket = self._tickets.get(output.request_id)
            if ticket is None:
                continue  # aborted while the step ran
            ticket.put(output)
            _log_acceptance(output)
            if ticket.is_over:
                self.release(ticket)

    def _reject(self, ticket: Ticket, error: Exception) -> None:
        if isinstance(error, Overloaded):
            self._rejected()
        self._forget(ticket)
        ticket.fail(error)

    def _open(self) -> None:
        self._closed = None
        self._ready.set()

    def _close(self) -> None:
        """The thread is dead: nobody may wait for it."""
        self._closed = "The engine has died; the server must be restarted."
        self._ready.set()
        for ticket in set(self._tickets.values()):
            self._reject(ticket, ApiError(500, "The engine has died."))

    # --- engine thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._warm_up()
            self._call(self._open)
            while True:
                self._obey()
                if self._engine.has_work:
                    self._step()
        except _Stop:
            return
        except BaseException:
            logger.critical("The engine's thread has died.", exc_info=True)
            self._call(self._close)

    def _warm_up(self) -> None:
        """One short request, so that the first real one pays for nothing lazy. It is not counted."""
        params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True, detokenize=False)
        self._engine.add(Request(WARM_UP, [0], params, monotonic()))
        while self._engine.has_work:
            self._engine.step()

    def _obey(self) -> None:
        """Run the commands that came since the last step; without work, wait for one."""
        is_idle = not self._engine.has_work
        while True:
            try:
                command = self._commands.get(block=is_idle)
            except Empty:
                return
            command()
            is_idle = False

    def _step(self) -> None:
        try:
            done = self._engine.step()
        except Exception as error:
            done = self._fail(error)
        self._count(done.stats)
        if done.outputs:
            self._call(partial(self._deliver, done.outputs))

    def _fail(self, error: Exception) -> StepOutputs:
        """A step went wrong: its requests end with reason "error", the others go on."""
        outputs = self._engine.fail(error)
        names = sorted({output.request_id for output in outputs})
        logger.error("A step failed; ended with an error: %s", ", ".join(names), exc_info=error)
        if not outputs:
            raise error  # nobody to blame: the next step would fail the same way
        stats = self._engine.snapshot()
        stats.finished = [output.stats for output in outputs if output.stats is not None]
        return StepOutputs(outputs, stats)

    def _add(self, ticket: Ticket) -> None:
        try:
            for request in ticket.requests:
                self._engine.add(request)
        except Exception as error:
            for request in ticket.requests:
                self._engine.abort(request.request_id)
            if not isinstance(error, UserError):
                logger.exception("A request could not be added; it ends with an error.")
            self._call(partial(self._reject, ticket, error))

    def _abort(self, request_ids: list[str]) -> None:
        finished = [stats for request_id in request_ids for stats in self._engine.abort(request_id)]
        if finished:
            stats = self._engine.snapshot()
            stats.finished = finished
            self._count(stats)

    def _count(self, stats: StepStats) -> None:
        """Before the outputs go out, so that whoever has a reply finds it counted."""
        try:
            self._record(stats)
        except Exception:
            logger.exception("A step could not be counted; its replies are good.")

    def _call(self, callback: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(callback)


def _log_acceptance(output: Output) -> None:
    spec = output.spec_decode_metrics
    if output.finish_reason is not None and spec is not None and spec.num_draft_tokens:
        logger.info("%s: %s", output.request_id, request_line(spec))


class _Stop(Exception):
    """Ends the engine's thread."""


def _stop() -> None:
    raise _Stop
