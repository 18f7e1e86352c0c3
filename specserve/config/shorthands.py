"""Short ways to say a key of `speculative_config` on the command line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specserve.config.engine import EngineConfig
from specserve.config.kinds import INTEGER, SWITCH, TEXT
from specserve.config.options import accept, flag, from_mapping, option, options_of, settle
from specserve.errors import ConfigError

logger = logging.getLogger(__name__)

KEYS = {
    "spec_method": "method",
    "spec_type": "method",
    "spec_default": "method",
    "spec_model": "model",
    "spec_tokens": "num_speculative_tokens",
}
DEPRECATED = {"speculative_model": "spec_model", "num_speculative_tokens": "spec_tokens"}
DEFAULT = "default"  # the method that spec_default stands for


@dataclass(frozen=True, slots=True)
class SpeculativeFlags:
    """Speculation in short."""

    spec_method: str | None = option(None, TEXT, "key method of speculative_config")
    spec_type: str | None = option(
        None, TEXT, "the same, in llama.cpp's words if you like: ngram-mod, or draft-simple,ngram-mod; none"
    )
    spec_default: bool = option(False, SWITCH, "speculation that needs no draft: docs/drafters/chain.md")
    spec_model: str | None = option(None, TEXT, "its key model", short="-md")
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
    said_by: dict[str, str] = {key: f"--speculative-config[{key!r}]" for key in raw}
    for name, value in given.items():
        key = KEYS[name]
        if key in said_by:
            message = f"{flag(name)} and {said_by[key]} are mutually exclusive; leave one out."
            raise ConfigError(message, key)
        said_by[key] = flag(name)
        raw = {**raw, key: value}
    return {**folded, "speculative_config": raw}


def _modern(flags: SpeculativeFlags) -> dict[str, Any]:
    """Those given, by their modern names."""
    values = {name: getattr(flags, name) for name in KEYS}
    values["spec_default"] = DEFAULT if flags.spec_default else None
    given = {name: value for name, value in values.items() if value is not None}
    for old, new in DEPRECATED.items():
        if (value := getattr(flags, old)) is None:
            continue
        logger.warning("%s is deprecated; use %s or --speculative-config.", flag(old), flag(new))
        if new in given:
            raise ConfigError(f"{flag(old)} and {flag(new)} are mutually exclusive; leave one out.", old)
        given[new] = value
    return given
