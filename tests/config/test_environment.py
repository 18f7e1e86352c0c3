"""Environment variables, given as a mapping."""

from __future__ import annotations

import pytest

from specserve.config.environment import Environment, read_environment
from specserve.errors import ConfigError


def test_an_empty_environment_says_nothing() -> None:
    assert read_environment({}) == Environment()


def test_all_variables_are_read() -> None:
    variables = {
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_API_KEY": "secret",
        "VLLM_LOG_STATS_INTERVAL": "2.5",
        "VLLM_LOGGING_LEVEL": "debug",
        "OPENAI_API_KEY": "mine",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
    }
    environment = read_environment(variables)
    assert environment == Environment(
        4 * 2**30, 2.5, "DEBUG", ("secret",), "mine", ("VLLM_USE_V2_MODEL_RUNNER=1",)
    )
    assert "secret" not in repr(environment)


@pytest.mark.parametrize("value", ["", "0", " 0 "])
def test_no_cache_space_leaves_the_size_to_the_machine(value: str) -> None:
    assert read_environment({"VLLM_CPU_KVCACHE_SPACE": value}).kv_cache_bytes is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_CPU_KVCACHE_SPACE", "much"),
        ("VLLM_CPU_KVCACHE_SPACE", "-1"),
        ("VLLM_LOG_STATS_INTERVAL", "inf"),
        ("VLLM_LOGGING_LEVEL", "LOUD"),
    ],
)
def test_an_error_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} must be .*{value}") as caught:
        read_environment({name: value})
    assert caught.value.param == name
