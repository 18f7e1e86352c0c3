"""Around every request: its id, in and out, and what it was answered with."""

from __future__ import annotations

import re
from uuid import uuid4

from prometheus_client import CollectorRegistry
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specserve.metrics.prometheus import http_requests

_GOOD_ID = re.compile(r"[!-~]{1,256}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NOT_COUNTED = frozenset({"/metrics", "/health", "/load", "/ping", "/version"})


class HttpCounts:
    """Answers by `http_requests_total{handler,method,status}`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = http_requests(registry)

    def answered(self, scope: Scope, status: int) -> None:
        """Handlers are route patterns, so a scan of random paths makes one series, not thousands."""
        handler = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        if handler not in _NOT_COUNTED:
            self._requests.labels(handler, method, f"{status // 100}xx").inc()


class Traffic:
    """Middleware. `scope["state"]["request_id"]` is the client's `X-Request-Id`, or a new one.

    The reply has that header if the request had it; with `always_says_id`, every reply has it.
    """

    def __init__(self, app: ASGIApp, counts: HttpCounts, *, always_says_id: bool = False) -> None:
        self._app = app
        self._counts = counts
        self._always_says_id = always_says_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        given = Headers(scope=scope).get("x-request-id", "")
        state["is_named"] = _GOOD_ID.fullmatch(given) is not None
        state["request_id"] = given if state["is_named"] else uuid4().hex
        status = 500

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if state["is_named"] or self._always_says_id:
                    MutableHeaders(scope=message)["X-Request-Id"] = state["request_id"]
            await send(message)

        try:
            await self._app(scope, receive, send_marked)
        finally:
            self._counts.answered(scope, status)
