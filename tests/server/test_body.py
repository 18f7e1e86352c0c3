"""Clients that send half a body, to a real server."""

from __future__ import annotations

import logging
import socket

import pytest

from specserve.server import body
from tests.support.server import Running, serving

PATHS = ["/v1/completions", "/v1/chat/completions", "/tokenize"]


def send_half(server: Running, path: str) -> socket.socket:
    """A connection on which a part of a body came."""
    client = socket.create_connection(("127.0.0.1", server.client.base_url.port))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
    client.sendall(head.encode() + b'{"prompt')
    return client


@pytest.mark.parametrize("path", PATHS)
def test_a_client_that_goes_away_while_it_sends_is_no_bug(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    counted = f'handler="{path}",method="POST",status="4xx"'
    with serving() as server:
        send_half(server, path).close()
        while counted not in server.client.get("/metrics").text:
            pass
        assert server.client.get("/load").json() == {"server_load": 0}
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("path", PATHS)
def test_a_client_that_stops_sending_gives_its_place_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(max_requests=1) as server:
        with monkeypatch.context() as patched:
            patched.setattr(body, "MAX_SILENCE", 0.01)
            with send_half(server, path) as client, client.makefile("rb") as reply:
                assert reply.readline() == b"HTTP/1.1 408 Request Timeout\r\n"
                assert reply.read().endswith(b'"code":408}}')  # and the connection is closed
        server.complete()
