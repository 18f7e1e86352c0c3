"""What steps cost on average, and which of their parts make a speed-up.

Per step of decoding, plain and with speculation:

    speed_up = acceptance * batch * plain_cost / (verification_cost + draft_cost + host_cost)

`acceptance` and `batch` are ratios of tokens per sequence and step, and of sequences per step; every cost is
a mean time over that of the plain network alone. So the factors give the measured ratio of decode rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from specserve.bench.offline import StepTime

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Means over steps without prompt rows; milliseconds. `rows`: medians of a target step by its rows."""

    num_steps: int
    tokens_per_step: float
    sequences_per_step: float
    step_ms: float
    target_ms: float
    network_ms: float
    draft_ms: float
    verify_ms: float
    rows: dict[int, float]
    is_native: bool

    @property
    def host_ms(self) -> float:
        """What is neither the network, nor drafting, nor verifying."""
        return self.step_ms - self.network_ms - self.draft_ms - self.verify_ms

    def figures(self) -> Figures:
        return {
            "num_steps": self.num_steps,
            "tokens_per_step": self.tokens_per_step,
            "step_ms": self.step_ms,
            "target_ms": self.target_ms,
            "draft_ms": self.draft_ms,
            "verify_ms": self.verify_ms,
            "host_ms": self.host_ms if self.is_native else None,
            "rows": {str(rows): ms for rows, ms in self.rows.items()},
        }


def step_costs(steps: Sequence[StepTime]) -> StepCosts | None:
    """None when no step only decoded."""
    found = [step for step in steps if step.is_decode]
    if not found:
        return None
    num_emitting = sum(step.num_emitting for step in found)
    by_rows: dict[int, list[float]] = {}
    for step in found:
        by_rows.setdefault(step.num_rows, []).append(1e3 * step.forward)
    return StepCosts(
        len(found),
        sum(step.num_emitted for step in found) / num_emitting,
        num_emitting / len(found),
        1e3 * fmean(step.seconds for step in found),
        1e3 * fmean(step.forward for step in found),
        1e3 * fmean(step.network for step in found),
        1e3 * fmean(step.draft for step in found),
        1e3 * fmean(step.verify for step in found),
        {rows: median(by_rows[rows]) for rows in sorted(by_rows)},
        is_native=any(step.native for step in found),
    )


def decompose(own: StepCosts, plain: StepCosts) -> Figures:
    """The factors of the speed-up of `own` over `plain`. `efficiency` is what of the acceptance arrives."""
    unit = plain.network_ms
    acceptance = own.tokens_per_step / plain.tokens_per_step
    batch = own.sequences_per_step / plain.sequences_per_step
    speed_up = acceptance * batch * plain.step_ms / own.step_ms
    return {
        "speed_up": speed_up,
        "acceptance": acceptance,
        "batch": batch,
        "plain_cost": plain.step_ms / unit,
        "verification_cost": own.network_ms / unit,
        "draft_cost": own.draft_ms / unit,
        "host_cost": (own.host_ms + own.verify_ms) / unit,
        "efficiency": speed_up / acceptance,
    }
