"""llama.cpp's words for drafters, and our default, as the keys they stand for.

`method` may hold one of them, or several names with commas between: those are a chain. A key beside them goes
to the drafter it belongs to. What a word stands for includes how many guesses, so a word alone is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specserve.config.options import nearest
from specserve.draft.config_methods import CHAIN, CHECKPOINT, PREDICTION, Method
from specserve.errors import ConfigError

NOTHING = "none"
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
SUFFIX = {"method": "suffix", "num_speculative_tokens": 8}
DEFAULT = {
    "method": CHAIN,
    "drafters": [
        {"method": PREDICTION, "num_speculative_tokens": 16},
        {**NGRAM, "prompt_lookup_min": 1, "prompt_lookup_max": 2},
        SUFFIX,
    ],
}
WORDS: Mapping[str, Mapping[str, Any]] = {
    "default": DEFAULT,
    "draft": {"method": "draft_model", "num_speculative_tokens": 4},
    "draft-simple": {"method": "draft_model", "num_speculative_tokens": 4},
    "draft-eagle3": {"method": "eagle3", "num_speculative_tokens": 3},
    "draft-mtp": {"method": "mtp", "num_speculative_tokens": 1},
    "draft-dflash": {"method": "dflash", "num_speculative_tokens": 8},
    "draft-dspark": {"method": "dspark"},
    "ngram-simple": NGRAM,
    "ngram-map-k": NGRAM,
    "ngram-map-k4v": NGRAM,
    "ngram-mod": NGRAM,
    "ngram-cache": SUFFIX,
}
EACH = ("num_speculative_tokens",)  # go to every drafter


def spelled_out(typed: Mapping[str, Any], methods: Mapping[str, Method]) -> dict[str, Any] | None:
    """The same in our keys; None when it asks for no speculation. Raises `ConfigError`.

    Keys are spelled with underscores.
    """
    method = typed.get("method")
    if method == NOTHING:
        return None
    if not isinstance(method, str) or ("," not in method and method not in WORDS):
        return dict(typed)
    rest = {key: value for key, value in typed.items() if key != "method" and value is not None}
    if "," not in method:
        return {**WORDS[method], **rest}
    drafters = [dict(WORDS.get(name) or {"method": name}) for name in _names(method, methods)]
    return _spread(rest, drafters, methods)


def _names(method: str, methods: Mapping[str, Method]) -> list[str]:
    names = [name.strip() for name in method.split(",")]
    for name in names:
        if name in ("default", CHAIN) or name not in (*WORDS, *methods):
            known = sorted({*WORDS, *methods} - {"default", CHAIN})
            raise ConfigError(
                f"method {method!r}: {name!r} cannot be one of several; {nearest(name, known)}", "method"
            )
    return names


def _spread(
    rest: Mapping[str, Any], drafters: list[dict[str, Any]], methods: Mapping[str, Method]
) -> dict[str, Any]:
    """A chain of the drafters, each with the keys that are its own; the others are the chain's."""
    chain: dict[str, Any] = {}
    for key, value in rest.items():
        takers = [one for one in drafters if _takes(methods[one["method"]], key)]
        if key == "model" and len(takers) != 1:
            have = " and ".join(one["method"] for one in takers) or "none of them"
            raise ConfigError(
                f"model={value!r} is one draft checkpoint, and {have} would take it; list the drafters in "
                f'{{"method": "{CHAIN}", "drafters": [...]}}, each with its own.',
                "model",
            )
        for one in takers:
            one[key] = value
        if not takers:
            chain[key] = value
    return {"method": CHAIN, "drafters": drafters, **chain}


def _takes(method: Method, key: str) -> bool:
    if key in CHECKPOINT:
        return method.has_checkpoint
    return key in EACH or key in method.keys
