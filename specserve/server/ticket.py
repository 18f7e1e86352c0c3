"""What one HTTP request waits for: the outputs of all its sequences. Belongs to the event loop."""

from __future__ import annotations

import asyncio

from specserve.server.errors import ApiError
from specserve.types import Output, Request

MAX_PENDING = 1024  # outputs per sequence that a client may leave unread


class Ticket:
    """A queue of outputs, bounded for streams: whoever reads slower than the model writes is cut off.

    A reply that is wanted whole is woken once, at its end; it holds no more than its tokens.
    """

    def __init__(
        self, requests: list[Request], *, is_stream: bool = True, max_pending: int = MAX_PENDING
    ) -> None:
        self.requests = requests
        self._is_stream = is_stream
        self._max_pending = max_pending * sum(request.params.n for request in requests)
        self._open = {(r.request_id, index) for r in requests for index in range(r.params.n)}
        self._pending: list[Output] = []
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_finished(self) -> bool:
        """Every sequence has ended by itself."""
        return not self._open

    @property
    def is_over(self) -> bool:
        return self.is_finished or self._error is not None

    def put(self, output: Output) -> None:
        """Called by the bridge; after a failure it changes nothing."""
        if self._error is not None:
            return
        self._pending.append(output)
        if output.finish_reason is not None:
            self._open.discard((output.request_id, output.index))
        if output.finish_reason == "error":
            self.fail(_failed(output))
        elif self._is_stream and len(self._pending) > self._max_pending:
            self.fail(ApiError(408, f"Aborted: {len(self._pending)} chunks were waiting to be read."))
        elif self._is_stream or self.is_finished:
            self._wake()

    def fail(self, error: Exception) -> None:
        """End with an error in place of what was not taken yet."""
        self._pending.clear()
        self._error = self._error or error
        self._wake()

    def abort(self) -> None:
        """End all sequences that still run with reason "abort"."""
        for request_id, index in sorted(self._open):
            self._pending.append(Output(request_id, index, [], "", finish_reason="abort"))
        self._open.clear()
        self._wake()

    async def take(self) -> list[Output]:
        """Everything new, at least one output. Raises what the ticket failed with."""
        while self._error is None and not self._is_due:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._error is not None:
            raise self._error
        taken, self._pending = self._pending, []
        return taken

    @property
    def _is_due(self) -> bool:
        return bool(self._pending) and (self._is_stream or self.is_finished)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _failed(output: Output) -> ApiError:
    """The request's own fault where a reason is given, else ours."""
    if output.stop_reason is not None:
        return ApiError(400, str(output.stop_reason))
    return ApiError(500, "This request failed while it was computed; the server's log says why.")
