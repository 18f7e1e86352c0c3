"""What a model recommends: default sampling parameters and more end tokens, from its generation config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specserve.config.engine import EngineConfig
from specserve.config.options import nearest
from specserve.errors import ConfigError, InvalidRequest
from specserve.sampling_params import SamplingParams

SAMPLING = {  # name there -> name here
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}
END_TOKENS = "eos_token_id"


def default_sampling(config: EngineConfig, from_model: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters for requests that do not say, by the names of `SamplingParams`.

    `from_model` is the checkpoint's generation config. Raises `ConfigError` naming the entry.
    """
    entries = _entries(config, from_model)
    found = {ours: entries[theirs] for theirs, ours in SAMPLING.items() if entries.get(theirs) is not None}
    try:
        SamplingParams(**found)
    except InvalidRequest as error:
        raise ConfigError(
            f"generation config: {error} Set it right with override_generation_config."
        ) from None
    return found


def end_token_ids(config: EngineConfig, from_model: Mapping[str, Any]) -> frozenset[int]:
    """Ids that end a text besides the tokenizer's own end token, whatever `generation_config` says."""
    found = {**from_model, **_override(config)}.get(END_TOKENS)
    ids = [] if found is None else [found] if isinstance(found, int) else found
    if not isinstance(ids, list) or not all(isinstance(i, int) and i >= 0 for i in ids):
        raise ConfigError(f"{END_TOKENS} must be a token id or a list of them, got {found!r}.", END_TOKENS)
    return frozenset(ids)


def _entries(config: EngineConfig, from_model: Mapping[str, Any]) -> dict[str, Any]:
    if config.generation_config == "vllm":
        base: Mapping[str, Any] = {}
    elif config.generation_config == "auto":
        base = from_model
    else:
        base = _read(Path(config.generation_config))
    return {**base, **_override(config)}


def _override(config: EngineConfig) -> Mapping[str, Any]:
    override = config.override_generation_config or {}
    for name in override:
        if name not in (*SAMPLING, END_TOKENS):
            known = nearest(name, (*SAMPLING, END_TOKENS))
            raise ConfigError(f"override_generation_config has the unknown key {name!r}; {known}", name)
    return override


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "generation_config.json"
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"generation_config={str(folder)!r}: cannot read {path} ({error}); give auto, vllm, "
            "or a folder with that file.",
            "generation_config",
        ) from None
    return dict(found)
