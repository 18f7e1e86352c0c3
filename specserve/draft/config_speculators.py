"""A draft checkpoint in speculators' format, given as the model to serve: it names its own target."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specserve.config.engine import EngineConfig
from specserve.draft.config_checkpoint import SPECULATORS
from specserve.errors import ConfigError

logger = logging.getLogger(__name__)

LOCKED = ("method", "model")


def follow_speculators(config: EngineConfig, checkpoint: Mapping[str, Any]) -> EngineConfig:
    """Serve the target that `checkpoint`, the config.json of `config.model`, was trained for, with the
    checkpoint as its drafter; any other model is served as it is.

    Keys of `speculative_config` add to what the checkpoint says, but for method and model. Raises
    `ConfigError` naming the missing entry.
    """
    if "speculators_config" not in checkpoint:
        return config
    found = _speculation(config.model, checkpoint)
    given = config.speculative_config or {}
    for key in LOCKED:
        if key in given and given[key] != found[key]:
            logger.warning("speculative_config: %s is %r, as %s says.", key, found[key], config.model)
    return replace(
        config,
        model=_entry(config.model, checkpoint, "speculators_config", "verifier", "name_or_path"),
        served_model_name=config.served_model_name or (config.model,),
        speculative_config={**found, **{key: given[key] for key in given if key not in LOCKED}},
    )


def _speculation(model: str, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    _entry(model, checkpoint, "transformer_layer_config")
    kind = _entry(model, checkpoint, "speculators_model_type")
    if kind not in SPECULATORS:
        message = f"{model}: speculators_model_type {kind!r} is none of {', '.join(SPECULATORS)}."
        raise ConfigError(message, "model")
    method, is_parallel = SPECULATORS[kind]
    k = _entry(model, checkpoint, "speculators_config", "proposal_methods", 0, "speculative_tokens")
    found = {"method": method, "model": model, "num_speculative_tokens": k}
    return {**found, "parallel_drafting": True} if is_parallel else found


def _entry(model: str, checkpoint: Mapping[str, Any], *path: str | int) -> Any:
    found: Any = checkpoint
    for step in path:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            where = ".".join(str(part) for part in path)
            message = f"Invalid speculators config structure: {model} has no {where}."
            raise ConfigError(message, "model") from None
    return found
