"""The environment, read in this one place. The names are vLLM's, so that its set-ups carry over."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from specserve.errors import ConfigError

IGNORED = ("VLLM_USE_V2_MODEL_RUNNER",)


@dataclass(frozen=True, slots=True)
class Environment:
    """`kv_cache_bytes` is None when the machine decides; `log_stats_interval` is in seconds.

    `client_api_key` is for `specserve chat --url`, which talks to a server as OpenAI's client does;
    `ignored` are settings that are known and have no effect here.
    """

    kv_cache_bytes: int | None = None
    log_stats_interval: float = 10.0
    log_level: str = "INFO"
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    client_api_key: str = field(default="EMPTY", repr=False)
    ignored: tuple[str, ...] = ()


def read_environment(variables: Mapping[str, str] = os.environ) -> Environment:
    """Raises `ConfigError` naming the variable."""
    key = variables.get("VLLM_API_KEY", "")
    gibibytes = _number(variables, "VLLM_CPU_KVCACHE_SPACE", 0.0)
    return Environment(
        kv_cache_bytes=int(gibibytes * 2**30) or None,
        log_stats_interval=_number(variables, "VLLM_LOG_STATS_INTERVAL", 10.0),
        log_level=_log_level(variables.get("VLLM_LOGGING_LEVEL") or "INFO"),
        api_keys=(key,) if key else (),
        client_api_key=variables.get("OPENAI_API_KEY") or "EMPTY",
        ignored=tuple(f"{name}={variables[name]}" for name in IGNORED if name in variables),
    )


def _number(variables: Mapping[str, str], name: str, default: float) -> float:
    text = variables.get(name, "").strip()
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number < float("inf"):
        raise ConfigError(
            f"{name} must be a number of at least 0, got {text!r}; unset it for {default:g}.", name
        )
    return number


def _log_level(name: str) -> str:
    levels = logging.getLevelNamesMapping()
    if name.upper() not in levels:
        raise ConfigError(
            f"VLLM_LOGGING_LEVEL must be one of {', '.join(levels)}, got {name!r}.", "VLLM_LOGGING_LEVEL"
        )
    return name.upper()
