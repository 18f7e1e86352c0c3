"""Which server `bench serve` asks: the one at an address, or one that it starts for itself."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from specserve.bench import serve
from specserve.bench.streams import server_command
from specserve.config.engine import EngineConfig, engine_config

SPECULATION = {"method": "ngram", "num_speculative_tokens": 3}


class FakeServer:
    started: EngineConfig
    port = 4711

    def __init__(self, config: EngineConfig) -> None:
        FakeServer.started = config

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.has_ended = True


def asked(monkeypatch: pytest.MonkeyPatch, **values: Any) -> str:
    """The address."""
    monkeypatch.setattr(serve, "Server", FakeServer)
    with serve.server_for(serve.read_run(values), values) as url:
        return url


@pytest.mark.parametrize(
    ("values", "url"),
    [
        ({}, "http://127.0.0.1:8000"),
        ({"port": "81", "host": "h"}, "http://h:81"),
        ({"base_url": "https://h/x/"}, "https://h/x"),
        ({"base_url": "http://h:1/v1/"}, "http://h:1"),
        ({"base_url": "http://h:1/v1", "endpoint": "/chat"}, "http://h:1/v1"),
        ({"launch": True}, "http://127.0.0.1:4711"),
        ({"quantization": "int8"}, "http://127.0.0.1:4711"),
        ({"quantization": "int8", "port": "81"}, "http://127.0.0.1:81"),
    ],
)
def test_the_address_is_the_given_one_or_that_of_an_own_server(
    values: dict[str, Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(monkeypatch, **values) == url


def test_an_own_server_gets_the_engines_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked(monkeypatch, model="m", dtype="float32", speculative_config=SPECULATION)
    assert FakeServer.started == engine_config(
        {
            "model": "m",
            "dtype": "float32",
            "speculative_config": SPECULATION,
            "per_request_spec_decode_metrics": "summary",
        }
    )
    asked(monkeypatch, launch=True)
    assert FakeServer.started == engine_config({"model": "smollm2-135m"})


def test_a_server_is_told_what_is_not_by_default() -> None:
    options = server_command(engine_config({"model": "m", "quantization": "int8"}), 9)[3:]
    assert options == ["serve", "m", "--port", "9", "--quantization", "int8"]
    config = engine_config({"model": "m", "speculative_config": {"method": "ngram"}})
    assert server_command(config, 9)[7:] == ["--speculative-config", '{"method": "ngram"}']


def test_options_that_do_nothing_are_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        asked(monkeypatch, quantization="int8", port="81")
    assert "quantization has no effect" in caplog.text
