"""Requests are HTTP as it should be; answers are read whatever way their length is told."""

from __future__ import annotations

import asyncio

import pytest

from specserve.bench.wire import Call, HttpWire, fetch, request_bytes
from specserve.errors import ConfigError

HEAD = b"HTTP/1.1 200 OK\r\n"


def talk(reply: bytes, call: Call, path: str = "") -> tuple[int, str, bytes]:
    """Status, body, and what the server was sent. It closes the connection after its reply."""

    async def main() -> tuple[int, str, bytes]:
        heard: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
            heard.append(head + await reader.readexactly(int(length[0][16:]) if length else 0))
            writer.write(reply)
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            wire = HttpWire(f"http://127.0.0.1:{port}{path}", {"Authorization": "Bearer k"})
            status, body = await fetch(wire, call)
        return status, body, heard[0].replace(f":{port}".encode(), b":PORT")

    return asyncio.run(main())


@pytest.mark.parametrize(
    "reply",
    [
        HEAD + b"Content-Length: 5\r\n\r\nhello",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
        HEAD + b"\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 5\r\n\r\nhello",
    ],
)
def test_a_body_is_whole_however_its_length_is_told(reply: bytes) -> None:
    status, body, _ = talk(reply, Call("/x"))
    assert (status, body) == (200, "hello")


def test_a_request_has_its_headers_and_its_body() -> None:
    reply = HEAD.replace(b"200", b"404") + b"Content-Length: 0\r\n\r\n"
    status, _, heard = talk(reply, Call("/v1/x", {"a": "é"}, {"X-Request-Id": "r"}), "/proxy/")
    assert status == 404
    lines = heard.decode().split("\r\n")
    assert lines == [
        "POST /proxy/v1/x HTTP/1.1",
        "Host: 127.0.0.1:PORT",
        "Authorization: Bearer k",
        "Connection: close",
        "X-Request-Id: r",
        "Content-Type: application/json",
        "Content-Length: 15",
        "",
        '{"a": "\\u00e9"}',
    ]


@pytest.mark.parametrize("reply", [b"", b"SSH-2.0-x\r\n\r\n"])
def test_what_is_no_answer_is_an_error_of_the_network(reply: bytes) -> None:
    with pytest.raises(OSError, match=r"no HTTP|without an answer"):
        talk(reply, Call("/x"))


def test_pieces_come_as_they_are_sent() -> None:
    async def main() -> list[bytes]:
        pieces: list[bytes] = []
        came = asyncio.Event()

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            await came.wait()  # never, if the first piece were kept back
            writer.write(b"1\r\nb\r\n0\r\n\r\n")
            writer.close()
            await writer.wait_closed()

        def take(piece: bytes) -> None:
            pieces.append(piece)
            came.set()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            line = await HttpWire(f"http://127.0.0.1:{port}", {}).connect()
            await asyncio.wait_for(line.exchange(Call("/"), take), 20)
            line.close()
        return pieces

    assert asyncio.run(main()) == [b"a", b"b"]


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://x:99999", "http://[x"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="is no address; give one as"):
        HttpWire(url, {})


def test_a_header_cannot_smuggle_another() -> None:
    with pytest.raises(ConfigError, match="has a line break"):
        request_bytes(Call("/", None, {"a": "b\r\nc: d"}), "", {})
