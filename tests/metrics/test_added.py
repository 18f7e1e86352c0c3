"""Steps added up are one step to whoever counts."""

from __future__ import annotations

from dataclasses import fields

from specserve.metrics.added import added
from specserve.types import DraftStats, StepStats

FIRST = StepStats(
    num_running=3, num_rows=5, drafts=[DraftStats(2, 1, 0)], inter_token_latency=[0.5], step_seconds=0.25
)
SECOND = StepStats(num_running=1, num_rows=2, kv_cache_usage=0.5, inter_token_latency=[1.0, 2.0])


def test_counts_add_up_and_lists_follow_one_another() -> None:
    total = added([FIRST, SECOND])
    assert (total.num_rows, total.step_seconds) == (7, 0.25)
    assert total.inter_token_latency == [0.5, 1.0, 2.0]
    assert total.drafts == [DraftStats(2, 1, 0)]


def test_gauges_are_the_last_ones() -> None:
    assert (added([FIRST, SECOND]).num_running, added([FIRST, SECOND]).kv_cache_usage) == (1, 0.5)
    assert (added([SECOND, FIRST]).num_running, added([SECOND, FIRST]).kv_cache_usage) == (3, 0.0)


def test_no_field_is_forgotten() -> None:
    """Each field in turn: its value comes through, alone and beside a step that has nothing."""
    for field in fields(StepStats):
        value = [1.5] if field.type.startswith("list") else 2
        step = StepStats(**{field.name: value})
        assert getattr(added([step]), field.name) == value
        assert getattr(added([StepStats(), step]), field.name) == value


def test_adding_changes_no_step() -> None:
    steps = [StepStats(inter_token_latency=[1.0]), StepStats(inter_token_latency=[2.0])]
    added(steps)
    assert [step.inter_token_latency for step in steps] == [[1.0], [2.0]]
