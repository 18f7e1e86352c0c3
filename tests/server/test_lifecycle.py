"""Ports and signals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from specserve.config.server import ServerConfig
from specserve.errors import ConfigError
from specserve.server.app import create_app
from specserve.server.bridge import Bridge
from specserve.server.jobs import Jobs
from specserve.server.lifecycle import Lifecycle, bind, check_certificate
from tests.support.fake_engine import FakeEngine
from tests.support.server import make_served


def lifecycle(engine: FakeEngine, bridge: Bridge) -> Lifecycle:
    served, config = make_served(engine), ServerConfig(shutdown_timeout=0)
    app = create_app(served, bridge, Jobs(served, engine.check, 8), config, registry=CollectorRegistry())
    return Lifecycle(app, bridge, config)


def run(engine: FakeEngine, *signals: int) -> bool:
    """Run a server in this thread, with these signals once it is ready."""

    async def main() -> bool:
        bridge = Bridge(engine, lambda _: None, max_requests=8)
        server = lifecycle(engine, bridge)
        server.stop_on_signals()
        running = asyncio.create_task(server.run(bind(ServerConfig(port=0))))
        if signals:
            await asyncio.sleep(0)  # the bridge is started
            await bridge.ready()
        for number in signals:
            os.kill(os.getpid(), number)
        return await running

    return asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_success(number: int) -> None:
    assert run(FakeEngine(), number)


def test_a_second_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)

    async def main() -> None:
        engine = FakeEngine()
        server = lifecycle(engine, Bridge(engine, lambda _: None, max_requests=8))
        for _ in range(2):
            server._on_signal(signal.SIGTERM)

    asyncio.run(main())
    assert codes == [128 + signal.SIGTERM]


def test_a_model_that_cannot_be_warmed_up_ends_the_server_in_failure() -> None:
    engine = FakeEngine()
    engine.step_error = RuntimeError("no memory")
    assert not run(engine)


def test_a_port_that_was_taken_meanwhile_ends_the_server() -> None:
    async def main() -> None:
        engine = FakeEngine()
        bridge = Bridge(engine, lambda _: None, max_requests=8)
        server = lifecycle(engine, bridge)
        first = bind(ServerConfig(port=0))
        second = bind(ServerConfig(port=first.getsockname()[1]))
        first.listen()
        with first, second, pytest.raises(OSError, match="in use"):
            await server.run(second)
        assert bridge._thread is not None
        assert not bridge._thread.is_alive()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_taken_port_is_one_clear_line() -> None:
    with bind(ServerConfig(port=0)) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}.*Choose another --port"):
            bind(ServerConfig(port=port))


def test_a_host_that_is_not_here_is_what_the_error_is_about() -> None:
    with pytest.raises(
        ConfigError, match=r"192\.0\.2\.1:0.*Choose another --host"
    ) as caught:  # for documentation
        bind(ServerConfig(host="192.0.2.1", port=0))
    assert caught.value.param == "host"


@pytest.mark.parametrize(
    ("keyfile", "named"), [(None, "ssl_certfile="), ("key.pem", "ssl_keyfile='key.pem'")]
)
def test_a_certificate_that_is_no_use_is_one_clear_line(
    tmp_path: Path, keyfile: str | None, named: str
) -> None:
    for certificate in (tmp_path / "absent.pem", tmp_path / "text.pem"):
        (tmp_path / "text.pem").write_text("no certificate")
        with pytest.raises(ConfigError, match=f"{named}.* cannot be used for HTTPS"):
            check_certificate(ServerConfig(ssl_certfile=str(certificate), ssl_keyfile=keyfile))


def test_a_key_needs_a_certificate() -> None:
    check_certificate(ServerConfig())
    with pytest.raises(ConfigError, match="ssl_keyfile needs ssl_certfile"):
        check_certificate(ServerConfig(ssl_keyfile="key.pem"))


def test_a_bound_socket_does_not_listen_before_the_model_is_there() -> None:
    sock, client = bind(ServerConfig(port=0)), socket.socket()
    with sock, client, pytest.raises(ConnectionRefusedError):
        client.connect(sock.getsockname())


def test_a_bound_socket_sends_small_replies_without_delay() -> None:
    with bind(ServerConfig(port=0)) as sock:
        assert sock.proto == socket.IPPROTO_TCP  # what asyncio looks at


def test_a_unix_socket_replaces_one_that_was_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    config = ServerConfig(uds=str(path))
    bind(config).close()
    assert path.is_socket()
    bind(config).close()
    path.unlink()
    path.write_text("a file")
    with pytest.raises(ConfigError, match="--uds"):
        bind(config)
    assert path.read_text() == "a file"


def test_a_unix_socket_is_served(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def main() -> int:
        engine = FakeEngine()
        bridge = Bridge(engine, lambda _: None, max_requests=8)
        server = lifecycle(engine, bridge)
        running = asyncio.create_task(server.run(bind(ServerConfig(uds=path))))
        await asyncio.sleep(0)  # the bridge is started
        await bridge.ready()
        transport = httpx.AsyncHTTPTransport(uds=path)
        async with httpx.AsyncClient(transport=transport, base_url="http://local") as client:
            reply = await client.get("/health")
        server.stop()
        assert await running
        return reply.status_code

    assert asyncio.run(asyncio.wait_for(main(), 20)) == 200
