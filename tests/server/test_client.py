"""The terminal's client, against a server that answers from a script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from specserve.errors import ConfigError
from specserve.server.client import Client, Piece

EVENTS: list[dict[str, Any]] = [
    {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"delta": {"content": "Grüß"}}]},
    {"choices": [{"delta": {"content": " Gott"}, "finish_reason": "stop"}]},
    {
        "choices": [],
        "usage": {"completion_tokens": 5},
        "metrics": {"speculative_decoding": {"mean_acceptance_length": 2.5}},
    },
]


class Script(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(200, json.dumps({"data": [{"id": "a"}, {"id": "b"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.headers["Authorization"], body))  # type: ignore[attr-defined]
        if body["model"] == "unknown":
            return self._answer(
                404, json.dumps({"error": {"message": "The model `unknown` does not exist."}})
            )
        if body["model"] == "broken":
            return self._answer(500, "no JSON")
        events = [{"error": {"message": "a step failed"}}] if body["model"] == "failing" else EVENTS
        frames = [f"data: {json.dumps(event)}\n\n" for event in events]
        return self._answer(200, ": comment\n\n" + "".join(frames) + "data: [DONE]\n\n")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Script) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(server: HTTPServer) -> Client:
    return Client(f"http://127.0.0.1:{server.server_port}/v1/", "key")


def test_models_come_in_the_servers_order(client: Client) -> None:
    assert client.models() == ["a", "b"]


def test_a_reply_comes_in_pieces_with_the_figures_last(client: Client, server: Any) -> None:
    pieces = list(client.chat("a", [{"role": "user", "content": "hi"}], {"temperature": 0}))
    assert "".join(piece.text for piece in pieces) == "Grüß Gott"
    assert pieces[-1] == Piece("", 5, 2.5)
    [(authorization, body)] = server.asked
    assert authorization == "Bearer key"
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert (body["stream"], body["temperature"]) == (True, 0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("unknown", "answers 404: The model `unknown` does not exist."),
        ("broken", "answers 500: no JSON"),
        ("failing", "a step failed"),
    ],
)
def test_an_error_says_what_the_server_says(client: Client, model: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        list(client.chat(model, [], {}))


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "127.0.0.1:9/v1", "ftp//x"])
def test_a_server_that_cannot_be_reached_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match=f"Cannot reach {url} .*is the server running"):
        Client(url, "key").models()
