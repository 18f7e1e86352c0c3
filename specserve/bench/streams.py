"""A server in a process of its own, and a client that takes as little as it can from the machine it measures.

One thread reads all streams. Each event is parsed, as a client must, but not by a client library: those
take longer per event than the server does.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from http.client import HTTPConnection
from select import EPOLLIN, epoll
from time import monotonic, sleep
from types import TracebackType
from typing import Any

from specserve.config.engine import EngineConfig
from specserve.config.options import flag
from specserve.errors import ConfigError

SECONDS_TO_START = 180.0
TOLD = ("quantization", "dtype", "speculative_config", "per_request_spec_decode_metrics")


class Server:
    """`with Server(config) as server`: ready inside the block, gone after it."""

    def __init__(self, config: EngineConfig) -> None:
        self.port = _free_port()
        self._process = subprocess.Popen(
            server_command(config, self.port),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )

    def __enter__(self) -> Server:
        limit = monotonic() + SECONDS_TO_START
        while not self._is_healthy():
            if self._process.poll() is not None or monotonic() > limit:
                self._process.kill()
                raise ConfigError("The server did not start; specserve serve with the same options says why.")
            sleep(0.2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()

    def _is_healthy(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


def stream(port: int, prompts: list[list[int]], num_tokens: int) -> int:
    """Stream all prompts at the same time; the number of tokens that came back."""
    streams = {one.fileno(): one for one in (_Stream(port, prompt, num_tokens) for prompt in prompts)}
    num_received = 0
    try:
        with epoll(len(streams)) as news:
            for number in streams:
                news.register(number, EPOLLIN)
            while streams:
                for number, _ in news.poll():
                    if streams[number].read():
                        done = streams.pop(number)
                        num_received += done.num_tokens
                        done.close()
    finally:
        for left in streams.values():
            left.close()
    return num_received


class _Stream:
    """One completion over a connection of its own."""

    def __init__(self, port: int, prompt: list[int], num_tokens: int) -> None:
        self.num_tokens = 0
        self._rest = b""  # of a line that has not ended yet
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(_request(prompt, num_tokens))

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bool:
        """Take what has come; True at the end of the stream."""
        data = self._socket.recv(16384)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:  # sizes of chunks and blank lines lie between the events
            if line.startswith(b"data: {"):
                self._take(json.loads(line[6:]))
        return not data or b"data: [DONE]" in lines

    def close(self) -> None:
        self._socket.close()

    def _take(self, event: dict[str, Any]) -> None:
        if "error" in event:
            raise RuntimeError(f"the server ended a stream: {event['error']}")
        if event["usage"] is not None:
            self.num_tokens = int(event["usage"]["completion_tokens"])


def _request(prompt: list[int], num_tokens: int) -> bytes:
    body = {
        "prompt": prompt,
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    data = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def server_command(config: EngineConfig, port: int) -> list[str]:
    """What starts a server. Of the engine's options it is told those of `TOLD`."""
    command = [sys.executable, "-m", "specserve", "serve", config.model, "--port", str(port)]
    for f in fields(config):
        given = getattr(config, f.name)
        if f.name in TOLD and given != f.default:
            command += [flag(f.name), json.dumps(dict(given)) if isinstance(given, Mapping) else given]
    return command


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
