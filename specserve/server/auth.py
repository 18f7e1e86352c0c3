"""API keys: everything is guarded but a few paths that tell nothing about anyone's requests."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from specserve.server.errors import ApiError

OPEN_PATHS = frozenset({"/health", "/ping", "/version", "/metrics", "/"})


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class ApiKeys:
    """Lets requests with a known key through and names their tenant. Without keys all are one tenant.

    `scope["state"]["tenant"]` is the key's digest in hex. Preflights (OPTIONS) carry no key and pass.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode("utf-8", "surrogateescape")) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._digests:
            tenant = self._tenant(dict(scope["headers"]).get(b"authorization", b""))
            if tenant is None and not _is_open(scope):
                headers = {"WWW-Authenticate": "Bearer"}
                refusal = ApiError(401, "A valid API key is needed as a bearer token.", headers=headers)
                await refusal.response()(scope, receive, send)
                return
            scope.setdefault("state", {})["tenant"] = tenant or ""
        await self._app(scope, receive, send)

    def _tenant(self, authorization: bytes) -> str | None:
        """The matching key's digest. All keys are compared, so the time tells nothing."""
        scheme, _, key = authorization.partition(b" ")
        given = _digest(key.strip())
        matches = [hmac.compare_digest(given, known) for known in self._digests]
        return given.hex() if scheme.lower() == b"bearer" and any(matches) else None


def _is_open(scope: Scope) -> bool:
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return scope["method"] == "OPTIONS" or path in OPEN_PATHS
