"""Which draft sampling goes with which verification, and the parameters of the lossy rules."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from specserve.config.speculative import SpeculativeConfig
from specserve.draft.config_methods import Method
from specserve.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rule:
    """`draft_samples` are the ways of drawing drafts the rule is right for. A lossy one has a `warning`.
    `keys` belong to it alone."""

    draft_samples: tuple[str, ...]
    warning: str | None = None
    keys: tuple[str, ...] = ()


FREE = ("greedy", "probabilistic")
RULES = {
    "standard": Rule(FREE),
    "block": Rule(FREE),
    "coupled": Rule(("greedy", "coupled")),  # drafts drawn with the target's own noise, or not drawn at all
    "synthetic": Rule(FREE, warning="Synthetic acceptance ignores the target; its text means nothing."),
    "fly": Rule(
        FREE,
        warning="FLy verification is a lossy speculative decoding method: it keeps guesses the target would "
        "have refused.",
        keys=("fly_window_size", "fly_entropy_threshold", "fly_entropy_top_k"),
    ),
}


def decide_rules(rule: str | None, draw: str | None, method: Method) -> tuple[str, str]:
    """`rejection_sample_method` and `draft_sample_method`; "coupled" in one implies it in the other.

    Raises `ConfigError` for a pair that would bias the text.
    """
    if draw == "coupled" and rule is None:
        rule = "coupled"
    if rule == "coupled" and draw is None and method.samples:
        draw = "coupled"
    rule, draw = rule or "standard", draw or "greedy"
    if draw not in RULES[rule].draft_samples:
        legal = " or ".join(RULES[rule].draft_samples)
        raise ConfigError(
            f"draft_sample_method={draw!r} does not go with rejection_sample_method={rule!r}, "
            f"which takes {legal}.",
            "draft_sample_method",
        )
    if draw != "greedy" and not method.samples:
        logger.warning(
            "draft_sample_method has no effect: %s has no probabilities to draw from.", method.name
        )
        return rule, "greedy"
    return rule, draw


def with_lossy_parameters(config: SpeculativeConfig) -> SpeculativeConfig:
    """Check the lossy rules' keys and fill in what is left open. Raises `ConfigError`."""
    rule = config.rejection_sample_method
    if rule == "fly":
        return replace(config, fly_window_size=_fly_window(config))
    rates, length = config.synthetic_acceptance_rates, config.synthetic_acceptance_length
    if rule != "synthetic":
        if rates is not None or length is not None:
            key = "synthetic_acceptance_rates" if rates is not None else "synthetic_acceptance_length"
            raise ConfigError(f"{key} needs rejection_sample_method='synthetic', got {rule!r}.", key)
        return config
    if (rates is None) == (length is None):
        raise ConfigError(
            "rejection_sample_method='synthetic' needs exactly one of synthetic_acceptance_rates and "
            "synthetic_acceptance_length.",
            "rejection_sample_method",
        )
    k = config.num_speculative_tokens
    found = _rates(rates, k) if rates is not None else synthetic_rates(length or 0.0, k)
    return replace(config, synthetic_acceptance_rates=found)


def warn_if_lossy(config: SpeculativeConfig | None) -> None:
    """For a configuration that is taken: an error tells enough without it."""
    if config is not None and (warning := RULES[config.rejection_sample_method].warning) is not None:
        logger.warning(warning)


def synthetic_rates(length: float, k: int) -> tuple[float, ...]:
    """P(first i+1 drafts all accepted) with mean length L = `length` and the least variance.

    With d = L - 1 and f = floor(d): f ones, then d - f, then zeros; every step keeps f or f + 1 drafts.
    """
    if not 1.0 <= length <= k + 1:
        raise ConfigError(
            f"synthetic_acceptance_length must be from 1 to num_speculative_tokens + 1 = {k + 1}, "
            f"got {length:g}.",
            "synthetic_acceptance_length",
        )
    return tuple(min(1.0, max(0.0, length - 1.0 - i)) for i in range(k))


def _rates(rates: Sequence[Any], k: int) -> tuple[float, ...]:
    key = "synthetic_acceptance_rates"
    if len(rates) != k:
        raise ConfigError(f"{key} must hold num_speculative_tokens={k} rates, got {len(rates)}.", key)
    if any(isinstance(r, bool) or not isinstance(r, int | float) or not 0.0 <= r <= 1.0 for r in rates):
        raise ConfigError(f"{key} must be numbers from 0 to 1, got {list(rates)}.", key)
    if any(later > earlier for earlier, later in pairwise(rates)):
        raise ConfigError(f"{key} must not increase, got {list(rates)}.", key)
    return tuple(float(rate) for rate in rates)


def _fly_window(config: SpeculativeConfig) -> int:
    k = config.num_speculative_tokens
    if k < 2:
        raise ConfigError(
            f"rejection_sample_method='fly' needs num_speculative_tokens of at least 2, got {k}.",
            "num_speculative_tokens",
        )
    window = config.fly_window_size or min(6, k - 1)
    if window >= k:
        raise ConfigError(
            f"fly_window_size must be less than num_speculative_tokens={k}, got {window}.", "fly_window_size"
        )
    return window
