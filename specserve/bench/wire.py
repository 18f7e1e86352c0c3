"""HTTP as a benchmark needs it: one request per connection, and each piece of the answer as it comes.

A `Wire` makes connections, a `Line` is one of them. They are protocols so that answers can also come from a
script with times of its own.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser

from specserve.errors import ConfigError

PIECE = 65536  # bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A request: GET without a body, else POST of its JSON."""

    path: str
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Line(Protocol):
    """A connection that was made and carries one request."""

    async def exchange(self, call: Call, take: Callable[[bytes], None]) -> int:
        """Send; `take` gets the answer's body piece by piece. The status. Raises `OSError`."""

    def close(self) -> None: ...


class Wire(Protocol):
    async def connect(self) -> Line:
        """Raises `OSError`."""


async def fetch(wire: Wire, call: Call) -> tuple[int, str]:
    """Status and whole body. Raises `OSError`."""
    pieces: list[bytes] = []
    line = await wire.connect()
    try:
        status = await line.exchange(call, pieces.append)
    finally:
        line.close()
    return status, b"".join(pieces).decode("utf-8", "replace")


class HttpWire:
    """To one server. `headers` go with every request; `insecure` believes any certificate."""

    def __init__(self, url: str, headers: Mapping[str, str], *, insecure: bool = False) -> None:
        """Raises `ConfigError` for an address that is none."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ConfigError(_no_address(url), "base_url") from None
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ConfigError(_no_address(url), "base_url")
        self._tls = _tls(insecure) if parts.scheme == "https" else None
        self._host, self._port = parts.hostname, port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Host": parts.netloc.rpartition("@")[2], **headers, "Connection": "close"}

    async def connect(self) -> Line:
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        return _HttpLine(reader, writer, self._prefix, self._headers)


class _HttpLine:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        prefix: str,
        headers: Mapping[str, str],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._prefix, self._headers = prefix, headers

    async def exchange(self, call: Call, take: Callable[[bytes], None]) -> int:
        self._writer.write(request_bytes(call, self._prefix, self._headers))
        await self._writer.drain()
        response = _Response(take)
        parser = HttpResponseParser(response)
        while not response.is_complete:
            data = await self._reader.read(PIECE)
            if not data:
                break  # without a length the end of the connection is the end of the body
            try:
                parser.feed_data(data)
            except HttpParserError as error:
                raise OSError(f"no HTTP: {error}") from error
        if not response.has_head:
            raise OSError("the server closed the connection without an answer")
        return int(parser.get_status_code())

    def close(self) -> None:
        self._writer.close()


class _Response:
    """What `httptools` calls while it parses."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.on_body = take
        self.has_head = False
        self.is_complete = False

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_message_complete(self) -> None:
        self.is_complete = True


def request_bytes(call: Call, prefix: str, headers: Mapping[str, str]) -> bytes:
    """Raises `ConfigError` for a header that would be two."""
    data = b"" if call.body is None else json.dumps(call.body).encode()
    given = {**headers, **call.headers}
    if call.body is not None:
        given |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    for name, value in given.items():
        if any(mark in name + value for mark in "\r\n"):
            raise ConfigError(f"header {name!r} has a line break in it.", "header")
    lines = [f"{'GET' if call.body is None else 'POST'} {prefix}{call.path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in given.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


def _tls(insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _no_address(url: str) -> str:
    return f"base_url={url!r} is no address; give one as http://localhost:8000."
