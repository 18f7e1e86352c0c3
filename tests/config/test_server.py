"""The server's options."""

from __future__ import annotations

from typing import Any

import pytest

from specserve.config.server import ServerConfig, server_config
from specserve.errors import ConfigError, NotBuiltYet


def test_by_default_only_this_machine_is_served() -> None:
    config = ServerConfig()
    assert (config.host, config.port, config.api_key, config.allowed_origins) == ("127.0.0.1", 8000, (), ())


def test_lists_come_as_words_or_as_json() -> None:
    config = server_config({"api_key": ["a", "b"], "allowed_origins": ['["http://x", "http://y"]']})
    assert config.api_key == ("a", "b")
    assert config.allowed_origins == ("http://x", "http://y")


def test_keys_are_not_printed() -> None:
    assert "hidden" not in repr(server_config({"api_key": ["hidden"]}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 70000}, "at most 65535"),
        ({"api_key": [""]}, "api_key must be a list of non-empty strings"),
        ({"uvicorn_log_level": "loud"}, "uvicorn_log_level must be one of"),
        ({"shutdown_timeout": -1}, "shutdown_timeout must be a finite number, at least 0"),
        ({"hots": "a"}, "the nearest known name is 'host'"),
        ({"allowed_origins": ["*"], "allow_credentials": True}, "allow_credentials needs allowed_origins"),
    ],
)
def test_a_value_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server_config(options)
    assert message in str(caught.value)


def test_announced_options_name_themselves() -> None:
    with pytest.raises(NotBuiltYet, match=r"^tool_call_parser is not built yet\.$"):
        server_config({"tool_call_parser": "hermes"})
