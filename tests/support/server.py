"""A real server on a free port of this machine, in a thread of the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from specserve.config.server import ServerConfig
from specserve.server.app import create_app
from specserve.server.bridge import Bridge
from specserve.server.jobs import Jobs
from specserve.server.lifecycle import Lifecycle, bind
from specserve.server.served import Served
from specserve.types import StepStats
from tests.support.fake_engine import FakeEngine

MODEL = "fake"


@dataclass
class Running:
    """A server that runs. `call` runs a function on its event loop and waits for the result."""

    url: str
    engine: Any
    bridge: Bridge
    stats: list[StepStats]
    client: httpx.Client
    loop: asyncio.AbstractEventLoop
    lifecycle: Lifecycle
    thread: Thread

    def call(self, function: Callable[[], Any]) -> Any:
        done: Future[Any] = Future()
        self.loop.call_soon_threadsafe(lambda: done.set_result(function()))
        return done.result(10)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def complete(self, **body: Any) -> dict[str, Any]:
        reply = self.post("/v1/completions", **{"prompt": "x", "max_tokens": 100, **body})
        assert reply.status_code == 200, reply.text
        return reply.json()

    def chat(self, **body: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": "hi"}]
        reply = self.post("/v1/chat/completions", **{"messages": messages, **body})
        assert reply.status_code == 200, reply.text
        return reply.json()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.lifecycle.stop)
        if getattr(self.engine, "gate", None) is not None:
            self.engine.gate.release(10_000)
        self.thread.join(20)
        assert not self.thread.is_alive()


def make_served(engine: FakeEngine, **options: Any) -> Served:
    given = {"names": (MODEL,), "root": "/models/fake", "max_model_len": 200, **options}
    return Served(tokenizer=engine.tokenizer, **given)


def free_port(**options: Any) -> ServerConfig:
    return ServerConfig(**{"shutdown_timeout": 0, "port": 0, **options})


@contextmanager
def serving(
    engine: FakeEngine | None = None,
    *,
    served: dict[str, Any] | None = None,
    max_requests: int = 64,
    wait: bool = True,
    **options: Any,
) -> Iterator[Running]:
    """A server over a scripted engine. `options` are of `ServerConfig`; see `running` for `wait`."""
    engine = engine or FakeEngine()
    stats: list[StepStats] = []
    config = free_port(**options)
    bridge = Bridge(engine, stats.append, max_requests=max_requests)
    about = make_served(engine, **(served or {}))
    jobs = Jobs(about, engine.check, engine.max_waiting)
    app = create_app(about, bridge, jobs, config, registry=CollectorRegistry())
    with running(app, bridge, config, engine, wait=wait) as server:
        server.stats = stats
        yield server


@contextmanager
def running(
    app: FastAPI, bridge: Bridge, config: ServerConfig, engine: Any, *, wait: bool = True
) -> Iterator[Running]:
    """Serve an application from a thread of its own; unless `wait` is False it is ready."""
    sock = bind(config)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    started: Future[tuple[asyncio.AbstractEventLoop, Lifecycle]] = Future()

    async def main() -> None:
        lifecycle = Lifecycle(app, bridge, config)
        started.set_result((asyncio.get_running_loop(), lifecycle))
        await lifecycle.run(sock)

    thread = Thread(target=lambda: asyncio.run(main()), name="server")
    thread.start()
    loop, lifecycle = started.result(10)
    headers = {"Authorization": f"Bearer {config.api_key[0]}"} if config.api_key else {}
    with httpx.Client(base_url=url, headers=headers, timeout=20) as client:
        server = Running(url, engine, bridge, [], client, loop, lifecycle, thread)
        if wait:
            assert asyncio.run_coroutine_threadsafe(bridge.ready(), loop).result(10)
        try:
            yield server
        finally:
            if thread.is_alive():
                server.stop()
