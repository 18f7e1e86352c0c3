"""From the JSON object as typed to `SpeculativeConfig`: spellings, unknown keys, keys that are refused."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from specserve.config.options import accept, nearest
from specserve.config.speculative import SpeculativeConfig
from specserve.draft.config_methods import (
    ALIASES,
    CHAIN,
    METHODS,
    MTP_NAMES,
    Method,
    has_own_keys,
    named,
)
from specserve.errors import ConfigError

logger = logging.getLogger(__name__)

Given = dict[str, Any]  # keys of `SpeculativeConfig` as the user gave them, values checked

REFUSED = {
    "synthetic_acceptance_rate": "is no key; give synthetic_acceptance_rates or synthetic_acceptance_length",
    "tensor_parallel_size": "is the target's; give draft_tensor_parallel_size",
    "speculative_token_tree": "asks for draft trees, which are out of scope; drafts are chains",
    "disable_by_batch_size": "is no key; give num_speculative_tokens_per_batch_size with a last k of 0",
    "target_model_config": "is filled in by the engine; leave it out",
    "target_parallel_config": "is filled in by the engine; leave it out",
    "draft_parallel_config": "is filled in by the engine; leave it out",
}


def with_underscores(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Hyphens may stand for them in a key; the later of two spellings counts."""
    return {str(key).replace("-", "_"): value for key, value in raw.items()}


def read_keys(typed: Mapping[str, Any], methods: Mapping[str, Method]) -> tuple[Given, dict[str, Any]]:
    """Our keys with their values checked, and the keys of a drafter that is not ours.

    None is a key not given; `method` is there, in its modern spelling, when it or `model` says it, or when
    there are `drafters`. Raises `ConfigError` for a refused key, and for an unknown one.
    """
    known = {f.name: f for f in fields(SpeculativeConfig) if "option" in f.metadata}
    for key in typed:
        if key in REFUSED:
            raise ConfigError(f"speculative_config: {key} {REFUSED[key]}.", key)
    given = {
        key: accept(key, known[key].metadata["option"], value, known[key].default)
        for key, value in typed.items()
        if key in known and value is not None
    }
    implied = CHAIN if "drafters" in given else _from_model(given.get("model"))
    if method := _spelled(given.get("method") or implied):
        given["method"] = method
    extra = {key: value for key, value in typed.items() if key not in known}
    for key in extra:
        if method is None or not has_own_keys(named(method, methods)):
            raise ConfigError(f"speculative_config has the unknown key {key!r}; {nearest(key, known)}", key)
    return given, extra


def warn_without_effect(config: SpeculativeConfig, method: Method) -> None:
    """Say which keys belong to other methods: a mistake in a benchmark shall not stay hidden."""
    foreign = {key for other in METHODS for key in other.keys} - set(method.keys)
    for f in fields(config):
        if f.name in foreign and getattr(config, f.name) != f.default:
            logger.warning("speculative_config: %s has no effect with method %s.", f.name, method.name)


def _from_model(model: str | None) -> str | None:
    """The method that `model` alone implies; None when only its checkpoint can tell."""
    if model is None:
        return None
    if ALIASES.get(model, model) == "ngram":
        return "ngram"
    parts = model.split(".")
    is_dotted = len(parts) > 1 and all(part.isidentifier() for part in parts) and parts[-1] != "gguf"
    return "custom_class" if is_dotted else None


def _spelled(method: str | None) -> str | None:
    if method in MTP_NAMES:
        logger.warning("speculative_config: method %s is deprecated, replaced by mtp.", method)
        return "mtp"
    return ALIASES.get(method, method) if method is not None else None
