"""Sends a reply: the loop between a ticket and the socket, and the watch for a client that goes away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Response
from starlette.types import Receive, Scope, Send

from specserve.errors import UserError
from specserve.server.bridge import Bridge
from specserve.server.errors import ApiError, as_api_error, client_gone
from specserve.server.jobs import Job
from specserve.server.reply import Reply
from specserve.server.served import Served
from specserve.server.ticket import Ticket
from specserve.server.wire import dumps

logger = logging.getLogger(__name__)

UNBUFFERED = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))  # for caches and nginx


class Answer(Response):  # a Response only because FastAPI lets nothing else through as it is
    """Submits a job and sends what comes of it.

    The status is sent with the first output, so what goes wrong before that has a status of its own.
    """

    def __init__(self, job: Job, served: Served, bridge: Bridge) -> None:
        self._job = job
        self._bridge = bridge
        self._reply = Reply(job, served)
        self._ticket = Ticket(job.requests, is_stream=job.is_stream)
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._submitted(receive):
            await (self._stream(send) if self._job.is_stream else self._send_whole(send))

    @asynccontextmanager
    async def _submitted(self, receive: Receive) -> AsyncIterator[None]:
        """The engine works on the job inside the block, and not a step longer."""
        self._bridge.submit(self._ticket)
        watch = asyncio.create_task(_fail_when_gone(receive, self._ticket))
        try:
            yield
        finally:
            watch.cancel()
            self._bridge.release(self._ticket)

    async def _send_whole(self, send: Send) -> None:
        outputs = await self._ticket.take()
        body = dumps(self._reply.whole(outputs)).encode()
        await send(_start(b"application/json", (b"content-length", b"%d" % len(body))))
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, send: Send) -> None:
        outputs = await self._ticket.take()
        await send(_start(b"text/event-stream; charset=utf-8", *UNBUFFERED))
        await _send_more(send, self._reply.start())
        try:
            while True:
                await _send_more(send, self._reply.chunks(outputs))
                if self._reply.is_done:
                    break
                outputs = await self._ticket.take()
            end = self._reply.end()
        except Exception as error:
            if not isinstance(error, ApiError | UserError):
                logger.exception("%s: a bug ended the stream.", self._job.reply_id)
            end = Reply.error(as_api_error(error).body)
        await send({"type": "http.response.body", "body": end})


async def _fail_when_gone(receive: Receive, ticket: Ticket) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    ticket.fail(client_gone())


def _start(content_type: bytes, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    listed = [(b"content-type", content_type), *headers]
    return {"type": "http.response.start", "status": 200, "headers": listed}


async def _send_more(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
