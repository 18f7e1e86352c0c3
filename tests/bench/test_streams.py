"""The benchmark's clients count what the server says it sent."""

from __future__ import annotations

from urllib.parse import urlsplit

from specserve.bench.streams import stream
from tests.support.server import serving


def test_all_streams_are_counted() -> None:
    with serving() as server:
        port = urlsplit(server.url).port
        assert port is not None
        assert stream(port, [[1, 2, 3], [4, 5], [6]], 7) == 3 * 7
