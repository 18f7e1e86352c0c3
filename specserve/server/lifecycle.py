"""From the first signal of life to the last: serve, announce readiness, drain, stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from specserve.config.server import ServerConfig
from specserve.errors import ConfigError
from specserve.server.bridge import Bridge

logger = logging.getLogger(__name__)

SLACK = 5.0  # seconds an aborted reply has to reach its client


class Lifecycle:
    """One run of the server. `stop` begins its end and may be called from a signal handler of the loop."""

    def __init__(self, app: FastAPI, bridge: Bridge, config: ServerConfig) -> None:
        self._bridge = bridge
        self._timeout = config.shutdown_timeout
        self._stopping = asyncio.Event()
        self._server = _Server(
            uvicorn.Config(
                app,
                root_path=config.root_path,
                lifespan="off",
                log_config=None,
                log_level=config.uvicorn_log_level,
                access_log=not config.disable_uvicorn_access_log,
                ssl_keyfile=config.ssl_keyfile,
                ssl_certfile=config.ssl_certfile,
                timeout_graceful_shutdown=int(self._timeout + SLACK) + 1,
            )
        )

    async def run(self, sock: socket.socket) -> bool:
        """Serve on a bound socket until `stop`. False when the model could not be warmed up."""
        logger.info("Listening on %s.", _address(sock))
        self._bridge.start()
        serving = asyncio.create_task(self._server.serve(sockets=[sock]))
        serving.add_done_callback(lambda _: self.stop())  # it could not start
        is_ready = asyncio.create_task(self._announce())
        await self._stopping.wait()
        logger.info("Shutting down: no new requests, running ones have %g seconds.", self._timeout)
        self._bridge.refuse("The server is shutting down.")
        self._server.should_exit = True  # closes the listening socket and idle connections
        if not await self._bridge.drain(self._timeout):
            logger.warning("Aborted what was still running.")
        try:
            await serving
        finally:
            self._bridge.stop()  # a thread that runs on would crash the interpreter's end
        return await is_ready

    def stop(self) -> None:
        self._stopping.set()

    def stop_on_signals(self) -> None:
        """SIGINT and SIGTERM drain; a second one ends the process at once."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        if self._stopping.is_set():
            os._exit(128 + number)
        self.stop()

    async def _announce(self) -> bool:
        is_ready = await self._bridge.ready()
        if is_ready:
            logger.info("Application startup complete.")  # the words that scripts wait for
        elif not self._stopping.is_set():
            logger.critical("The model could not be warmed up.")
            self.stop()
        return is_ready


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: they would end the process by the signal, not by success."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where there is one: with it and httptools, a token's way out takes a third less."""
    return uvicorn.Config("", log_config=None).get_loop_factory()


def _address(sock: socket.socket) -> str:
    name = sock.getsockname()
    return name if isinstance(name, str) else f"{name[0]}:{name[1]}"


def check_certificate(config: ServerConfig) -> None:
    """Notice files for HTTPS that are no use before a model is loaded. Raises `ConfigError`."""
    certificate, key = config.ssl_certfile, config.ssl_keyfile
    if certificate is None:
        if key is not None:
            raise ConfigError("ssl_keyfile needs ssl_certfile.", "ssl_certfile")
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:
        files = f"ssl_certfile={certificate!r}" + (f" and ssl_keyfile={key!r}" if key is not None else "")
        raise ConfigError(f"{files} cannot be used for HTTPS ({error}).", "ssl_certfile") from error


def bind(config: ServerConfig) -> socket.socket:
    """A bound socket that does not listen yet, so that a taken port is noticed before a model is loaded.

    Raises `ConfigError`.
    """
    return _bind_unix(config.uds) if config.uds is not None else _bind_port(config.host, config.port)


def _bind_port(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio switches off Nagle's delay (40 ms) only where it sees it.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        other = "host" if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL else "port"
        message = f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --{other}."
        raise ConfigError(message, other) from error
    return sock


def _bind_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if Path(path).is_socket():
            Path(path).unlink()  # left behind by a server that was killed
        sock.bind(path)
    except OSError as error:
        sock.close()
        message = f"Cannot listen on {path}: {error.strerror}. Choose another --uds."
        raise ConfigError(message, "uds") from error
    return sock
