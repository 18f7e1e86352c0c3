"""Made-up steps give the speed-up and the factors that one can compute by hand."""

from __future__ import annotations

import pytest

from specserve.bench.offline import StepTime, step_time
from specserve.bench.step_costs import decompose, step_costs
from specserve.types import DraftStats, StepStats


def step(
    ms: float, native: float, *, draft: float = 0.0, verify: float = 0.0, rows: int = 1, emitted: int = 1
) -> StepTime:
    """One sequence that decodes. Planning takes 1 ms of the forward."""
    parts = [ms, native + 1.0, native, draft, verify]
    return StepTime(*(1e-3 * part for part in parts), rows, 1, emitted, is_decode=True)  # type: ignore[misc]


PLAIN = [step(12, 10, verify=0.5)] * 4
OWN = [
    step(18, 13, draft=2, verify=1, rows=5, emitted=4),
    step(18, 15, draft=1, verify=1, rows=5, emitted=2),
    step(12, 11, draft=0, verify=1, rows=1, emitted=1),
]


def test_parts_of_a_step_add_up() -> None:
    costs = step_costs(OWN)
    assert costs is not None
    found = costs.figures()
    expected = {
        "num_steps": 3,
        "tokens_per_step": 7 / 3,
        "step_ms": 16,
        "target_ms": 14,
        "draft_ms": 1,
        "verify_ms": 1,
        "host_ms": 1,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["rows"] == pytest.approx({"1": 12, "5": 15})


def test_the_factors_make_the_speed_up() -> None:
    own, plain = step_costs(OWN), step_costs(PLAIN)
    assert own is not None
    assert plain is not None
    found = decompose(own, plain)
    assert found["acceptance"] == pytest.approx(7 / 3)
    assert found["batch"] == 1
    assert found["plain_cost"] == pytest.approx(1.2)
    assert found["verification_cost"] == pytest.approx(1.3)
    assert found["draft_cost"] == pytest.approx(0.1)
    assert found["host_cost"] == pytest.approx(0.2)
    assert found["speed_up"] == pytest.approx((7 / 48) / (4 / 48))
    product = found["acceptance"] * found["batch"] * found["plain_cost"]
    costs = found["verification_cost"] + found["draft_cost"] + found["host_cost"]
    assert found["speed_up"] == pytest.approx(product / costs)
    assert found["efficiency"] == pytest.approx(found["speed_up"] / (7 / 3))


def test_nothing_gains_nothing() -> None:
    plain = step_costs(PLAIN)
    assert plain is not None
    found = decompose(plain, plain)
    assert (found["speed_up"], found["efficiency"]) == (1, 1)


def test_prompts_are_left_out() -> None:
    prompt = StepStats(num_rows=40, step_seconds=9.0, forward_seconds=9.0)
    mixed = StepStats(num_rows=40, num_emitting=2, num_emitted=2, step_seconds=9.0)
    assert step_costs([step_time(prompt), step_time(mixed)]) is None
    decode = StepStats(
        num_rows=6,
        num_emitting=2,
        num_emitted=5,
        drafts=[DraftStats(4, 3, 0)],
        step_seconds=0.02,
        forward_seconds=0.01,
    )
    costs = step_costs([step_time(stats) for stats in (prompt, decode, mixed, decode)])
    assert costs is not None
    assert (costs.num_steps, costs.tokens_per_step, costs.sequences_per_step) == (2, 2.5, 2)
    assert costs.figures()["host_ms"] is None  # PyTorch does not tell
    assert costs.network_ms == pytest.approx(10)
