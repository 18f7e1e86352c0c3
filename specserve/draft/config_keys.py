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
    CHECKPOINT,
    METHODS,
    MTP_NAMES,
    SAME_DRAFTER,
    Method,
    has_own_keys,
    named,
)
from specserve.draft.config_rules import RULES
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


def warn_without_effect(given: Given, method: Method, rule: str) -> None:
    """Say which keys belong to other methods or rules: a mistake in a benchmark shall not stay hidden."""
    told = "speculative_config: %s has no effect with %s %s; it belongs to %s."
    for key in given:
        methods = [one.name for one in METHODS if key in one.keys and one.name not in SAME_DRAFTER]
        rules = [name for name, one in RULES.items() if key in one.keys]
        if methods and key not in method.keys:
            logger.warning(told, key, "method", method.name, " and ".join(methods))
        elif rules and rule not in rules:
            logger.warning(told, key, "rejection_sample_method", rule, " and ".join(rules))
        elif key in CHECKPOINT and not _may_have_checkpoint(method) and not _is_its_name(given[key], method):
            logger.warning(told, key, "method", method.name, "methods with a draft checkpoint")


def _may_have_checkpoint(method: Method) -> bool:
    return method.has_checkpoint or has_own_keys(method)


def _is_its_name(value: Any, method: Method) -> bool:
    """vLLM takes a method's own name for a model that it does not have."""
    return isinstance(value, str) and _spelled(value) == method.name


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
