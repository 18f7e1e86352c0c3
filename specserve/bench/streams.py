"""A server in a process of its own, and clients that only read: standard library, one thread per stream."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from time import monotonic, sleep
from types import TracebackType

from specserve.config.engine import EngineConfig

SECONDS_TO_START = 180.0


class Server:
    """`with Server(config) as server`: ready inside the block, gone after it."""

    def __init__(self, config: EngineConfig) -> None:
        self.port = _free_port()
        command = [sys.executable, "-m", "specserve", "serve", config.model, "--port", str(self.port)]
        if config.speculative_config is not None:
            command += ["--speculative-config", json.dumps(dict(config.speculative_config))]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )

    def __enter__(self) -> Server:
        limit = monotonic() + SECONDS_TO_START
        while not self._is_healthy():
            if self._process.poll() is not None or monotonic() > limit:
                self._process.kill()
                raise RuntimeError("the server did not start; try the same model with scripts/serve")
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
    with ThreadPoolExecutor(len(prompts)) as pool:
        return sum(pool.map(partial(_stream_one, port, num_tokens), prompts))


def _stream_one(port: int, num_tokens: int, prompt: list[int]) -> int:
    body = {
        "prompt": prompt,
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    events = [line for line in connection.getresponse() if line.startswith(b"data: {")]
    connection.close()
    return int(json.loads(events[-1].removeprefix(b"data: "))["usage"]["completion_tokens"])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
