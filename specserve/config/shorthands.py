"""Short ways to say a key of `speculative_config` on the command line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specserve.config.engine import EngineConfig
from specserve.config.kinds import INTEGER, TEXT
from specserve.config.options import accept, flag, from_mapping, option, options_of, settle
from specserve.errors import ConfigError

logger = logging.getLogger(__name__)

KEYS = {"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"}
DEPRECATED = {"speculative_model": "spec_model", "num_speculative_tokens": "spec_tokens"}


@dataclass(frozen=True, slots=True)
class SpeculativeFlags:
    """Speculation in short."""

    spec_method: str | None = option(None, TEXT, "key method of speculative_config")
    spec_model: str | None = option(None, TEXT, "its key model")
    spec_tokens: int | None = option(None, INTEGER, "its key num_speculative_tokens")
    speculative_model: str | None = option(None, TEXT, "deprecated name of spec_model")
    num_speculative_tokens: int | None = option(None, INTEGER, "deprecated name of spec_tokens")

    def __post_init__(self) -> None:
        settle(self)


def fold_shorthands(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the shorthands moved into `speculative_config`.

    Raises `ConfigError` when something is said both ways. The object's keys are compared as typed, so a
    hyphenated one is not noticed and the shorthand, being the later, wins.
    """
    names = options_of(SpeculativeFlags)
    folded = {name: value for name, value in values.items() if name not in names}
    given = _modern(from_mapping(SpeculativeFlags, {n: v for n, v in values.items() if n in names}))
    if not given:
        return folded
    described = options_of(EngineConfig)["speculative_config"]
    raw = accept("speculative_config", described, folded.get("speculative_config"), None) or {}
    for name, value in given.items():
        key = KEYS[name]
        if key in raw:
            message = f"{flag(name)} and --speculative-config[{key!r}] are mutually exclusive; leave one out."
            raise ConfigError(message, key)
        raw = {**raw, key: value}
    return {**folded, "speculative_config": raw}


def _modern(flags: SpeculativeFlags) -> dict[str, Any]:
    """Those given, by their modern names."""
    given = {name: getattr(flags, name) for name in KEYS if getattr(flags, name) is not None}
    for old, new in DEPRECATED.items():
        if (value := getattr(flags, old)) is None:
            continue
        logger.warning("%s is deprecated; use %s or --speculative-config.", flag(old), flag(new))
        if new in given:
            raise ConfigError(f"{flag(old)} and {flag(new)} are mutually exclusive; leave one out.", old)
        given[new] = value
    return given
