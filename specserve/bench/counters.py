"""A server's counters, as `/metrics` tells them, and where its time went between two looks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

OURS = "specserve:"
STEPS = "vllm:iteration_tokens_total_count"


@dataclass(frozen=True, slots=True)
class Counters:
    """By name, added up over all labels; those with a label `position` also by it."""

    values: Mapping[str, float] = field(default_factory=dict)
    by_position: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    def since(self, before: Counters) -> Counters:
        """What was counted after `before`."""
        values = {name: value - before.values.get(name, 0) for name, value in self.values.items()}
        by_position = {
            name: {at: value - before.by_position.get(name, {}).get(at, 0) for at, value in found.items()}
            for name, found in self.by_position.items()
        }
        return Counters(values, by_position)

    @property
    def is_ours(self) -> bool:
        """Whether a specserve that speculates counts here."""
        return any(name.startswith(OURS + "spec_decode") for name in self.values)


def read_counters(text: str) -> Counters:
    """From Prometheus' text format; what cannot be read ends the reading, and what came before it counts."""
    values: dict[str, float] = {}
    by_position: dict[str, dict[int, float]] = {}
    with suppress(ValueError):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name, value = sample.name, sample.value
                values[name] = values.get(name, 0) + value
                if (position := sample.labels.get("position", "")).isdigit():
                    own = by_position.setdefault(name, {})
                    own[int(position)] = own.get(int(position), 0) + value
    return Counters(values, by_position)


def step_figures(counters: Counters) -> dict[str, Any]:
    """Mean milliseconds of the server's steps by their parts; empty for a server that does not tell.

    `host_ms` is what is neither the network nor drafting nor verifying; None where PyTorch computes, which
    does not say how long the network took.
    """
    num_steps = counters.values.get(STEPS, 0)
    seconds = {
        part: counters.values.get(f"{OURS}{part}_seconds_total", 0.0)
        for part in ("step", "forward", "draft", "verify", "native")
    }
    if num_steps <= 0 or not seconds["step"]:
        return {}
    host = seconds["step"] - seconds["native"] - seconds["draft"] - seconds["verify"]
    decode_steps = counters.values.get(f"{OURS}decode_steps_total", 0)
    decode_tokens = counters.values.get(f"{OURS}decode_tokens_total", 0)
    return {
        "num_steps": round(num_steps),
        "step_ms": 1e3 * seconds["step"] / num_steps,
        "target_ms": 1e3 * seconds["forward"] / num_steps,
        "draft_ms": 1e3 * seconds["draft"] / num_steps,
        "verify_ms": 1e3 * seconds["verify"] / num_steps,
        "host_ms": 1e3 * host / num_steps if seconds["native"] else None,
        "tokens_per_step": decode_tokens / decode_steps if decode_steps else None,
    }
