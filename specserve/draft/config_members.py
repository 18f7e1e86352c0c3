"""The drafters of a chain: which keys are theirs, which the chain's, and whose mistake a mistake is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from specserve.draft.config_keys import Given, with_underscores
from specserve.draft.config_methods import CHAIN, Method
from specserve.errors import ConfigError, NotBuiltYet

THE_CHAINS = (  # what happens to guesses, whoever made them
    "rejection_sample_method",
    "num_speculative_tokens_per_batch_size",
    "enable_adaptive_verification",
    "synthetic_acceptance_rates",
    "synthetic_acceptance_length",
    "fly_window_size",
    "fly_entropy_threshold",
    "fly_entropy_top_k",
)


@contextmanager
def of_member(number: int) -> Iterator[None]:
    """What is wrong inside is told of the member with this number."""
    where = f"drafters[{number}]"
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", _path(where, error.param)) from error
    except NotBuiltYet as error:
        raise NotBuiltYet(f"{where}: {error.name}", _path(where, error.param)) from error


def _path(where: str, param: str | None) -> str:
    return f"{where}.{param}" if param else where


def members_of(given: Given) -> Sequence[Mapping[str, Any]]:
    """What a chain was given as `drafters`, each with underscores in its keys. Raises `ConfigError`."""
    listed = given.get("drafters")
    if not listed:
        message = f"method {CHAIN!r} needs drafters: a list of objects, each a speculative_config of its own."
        raise ConfigError(message, "drafters")
    found = []
    for number, raw in enumerate(listed):
        with of_member(number):
            if not isinstance(raw, Mapping):
                raise ConfigError(f"must be an object with a method, got {raw!r}.")
            typed = with_underscores(raw)
            for key in THE_CHAINS:
                if typed.get(key) is not None:
                    raise ConfigError(f"{key} is the chain's; give it beside drafters.", key)
            found.append(typed)
    return found


def implied_rule(given: Given, members: Sequence[Mapping[str, Any]]) -> str | None:
    """A member that draws with the target's noise implies the rule for it, as it does alone."""
    rule: str | None = given.get("rejection_sample_method")
    if rule is None and any(member.get("draft_sample_method") == "coupled" for member in members):
        return "coupled"
    return rule


def inherit(given: Given, method: Method | None, rule: str, draw: str, k: int | None) -> Given:
    """A member's keys with those of the chain that it follows. `method` None: its checkpoint will tell."""
    found = {**given, "rejection_sample_method": rule}
    if draw != "greedy" and (method is None or method.samples):
        found.setdefault("draft_sample_method", draw)
    if k is not None and (method is None or method.guesses):
        found.setdefault("num_speculative_tokens", k)
    return found
