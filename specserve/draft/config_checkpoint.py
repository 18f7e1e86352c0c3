"""What a draft checkpoint's config.json says: which method it is for, how many guesses, which sizes.

Speculators' format is read as it is: its `transformer_layer_config` holds the network's own entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specserve.draft.config_methods import MTP_NAMES, REMOVED
from specserve.errors import ConfigError

SPECULATORS = {  # speculators_model_type -> method, and whether all guesses come in one pass
    "eagle": ("eagle", False),
    "eagle3": ("eagle3", False),
    "peagle": ("eagle3", True),
    "dflash": ("dflash", True),
    "dflash2": ("dflash", True),
    "dspark": ("dspark", True),
    "mtp": ("mtp", False),
}
ARCHITECTURES = (  # part of the name -> method; the first that fits
    ("Eagle3", "eagle3"),
    ("Eagle", "eagle"),
    ("DFlash", "dflash"),
    ("MuseGlimmerAssistant", "dflash"),
    ("DSpark", "dspark"),
    ("MTP", "mtp"),
)
MTP_TYPES = MTP_NAMES | {"gemma4_assistant", "gemma4_unified_assistant"}
NAMES = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
MTP_DEPTHS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")


@dataclass(frozen=True, slots=True)
class Detected:
    """`evidence` completes "the checkpoint is for …". Only a name is no certain evidence."""

    method: str
    evidence: str
    is_certain: bool = True
    is_parallel: bool = False


def detect(model: str, checkpoint: Mapping[str, Any] | None) -> Detected | None:
    """In order: speculators' own word, architecture, model type, the name. None: nothing speaks."""
    return _from_config(checkpoint or {}) or _from_name(model)


def _from_config(checkpoint: Mapping[str, Any]) -> Detected | None:
    kind = checkpoint.get("speculators_model_type")
    if kind is not None:
        if kind not in SPECULATORS:
            known = ", ".join(SPECULATORS)
            raise ConfigError(f"speculators_model_type {kind!r} of the draft is none of {known}.", "model")
        method, is_parallel = SPECULATORS[kind]
        return Detected(method, f"speculators_model_type {kind}", is_parallel=is_parallel)
    for architecture in checkpoint.get("architectures") or ():
        for part, method in ARCHITECTURES:
            if part in architecture:
                return Detected(method, f"architecture {architecture}")
    model_type = checkpoint.get("model_type")
    if model_type in REMOVED:
        raise ConfigError(f"the draft is a {model_type}, and that method was removed.", "model")
    if model_type in MTP_TYPES:
        return Detected("mtp", f"model_type {model_type}")
    return None


def _from_name(model: str) -> Detected | None:
    for part, method in NAMES:
        if part in model.lower():
            return Detected(method, f"name {model}", is_certain=False)
    return None


def entry(checkpoint: Mapping[str, Any], *names: str) -> Any:
    """The first of `names` that the config has, at the top or in its network's own part."""
    parts = [
        checkpoint,
        *(checkpoint.get(part) or {} for part in ("transformer_layer_config", "text_config")),
    ]
    return next((part[name] for name in names for part in parts if part.get(name) is not None), None)


def predicted_tokens(method: str, checkpoint: Mapping[str, Any]) -> int | None:
    """n_predict: how many positions the checkpoint was trained to guess."""
    names = ("n_predict", *MTP_DEPTHS) if method == "mtp" else ("n_predict",)
    found = entry(checkpoint, *names)
    return found if isinstance(found, int) and found > 0 else None


def default_tokens(method: str, checkpoint: Mapping[str, Any]) -> int | None:
    """k when it is not given."""
    if method == "dspark":
        found: int | None = entry(checkpoint, "block_size", "dspark_block_size")
        return found
    return predicted_tokens(method, checkpoint)
