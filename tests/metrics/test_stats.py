"""Steps added up, and the log lines word for word."""

from __future__ import annotations

import logging
import math

import pytest

from specserve.metrics.stats import (
    EngineStats,
    PeriodicLog,
    PrefixWindow,
    SpeculationTotals,
    request_line,
    speculation_line,
)
from specserve.types import DraftStats, SpecDecodeMetrics, StepStats


def totals(*drafts: tuple[int, int, int], k: int = 3) -> SpeculationTotals:
    total = SpeculationTotals(k)
    for drafted, accepted, discarded in drafts:
        total.add(DraftStats(drafted, accepted, discarded))
    return total


def test_totals_begin_at_zero_and_share_nothing() -> None:
    first, second = SpeculationTotals(3), SpeculationTotals(3)
    first.add(DraftStats(3, 3, 0))
    assert (second.num_drafts, second.num_draft_tokens, second.num_accepted_tokens) == (0, 0, 0)
    assert second.accepted_per_position == [0, 0, 0]
    assert second.mean_acceptance_length == 1.0
    assert math.isnan(second.draft_acceptance_rate)


def test_the_reference_vector() -> None:
    total = totals((3, 3, 0), (3, 1, 0), (2, 0, 0))
    assert (total.num_drafts, total.num_draft_tokens, total.num_accepted_tokens) == (3, 8, 4)
    assert total.accepted_per_position == [2, 1, 1]
    assert total.num_rejected_tokens == 4
    assert total.acceptance_per_position == pytest.approx([2 / 3, 1 / 3, 1 / 3])


def test_the_mean_includes_the_targets_own_token() -> None:
    assert totals((3, 3, 0), (3, 0, 0)).mean_acceptance_length == 2.5


def test_drafted_is_accepted_plus_rejected_plus_discarded() -> None:
    total = totals((3, 1, 2), (3, 1, 0), (2, 0, 1))
    assert (total.num_accepted_tokens, total.num_discarded_tokens, total.num_rejected_tokens) == (2, 3, 3)
    assert total.accepted_per_position == [2, 0, 0]
    assert total.draft_acceptance_rate == 0.25


@pytest.mark.parametrize("draft", [(3, 4, 0), (4, 1, 0), (3, 2, 2), (3, -1, 0)])
def test_impossible_counts_are_a_bug(draft: tuple[int, int, int]) -> None:
    with pytest.raises(AssertionError):
        totals(draft)


def test_engine_totals_add_every_step() -> None:
    total = EngineStats(num_spec_tokens=2)
    step = StepStats(
        num_rows=6,
        num_prompt_tokens=5,
        num_prompt_tokens_cached=4,
        num_generation_tokens=3,
        num_emitting=1,
        num_emitted=3,
        num_preemptions=1,
        num_trimmed_draft_tokens=2,
        drafts=[DraftStats(2, 2, 0)],
        forward_seconds=0.5,
        verify_seconds=0.25,
        draft_seconds=0.125,
        step_seconds=1.0,
    )
    total.add(step)
    total.add(step)
    assert (total.num_steps, total.num_rows, total.num_prompt_tokens) == (2, 12, 10)
    assert (total.num_prompt_tokens_cached, total.num_generation_tokens) == (8, 6)
    assert (total.num_preemptions, total.num_trimmed_draft_tokens) == (2, 4)
    assert (total.forward_seconds, total.verify_seconds, total.draft_seconds) == (1.0, 0.5, 0.25)
    assert total.step_seconds == 2.0
    assert total.tokens_per_step == 3.0
    assert total.speculation.mean_acceptance_length == 3.0
    assert EngineStats().tokens_per_step == 1.0


def test_the_hit_rate_looks_back_on_recent_steps_only() -> None:
    window = PrefixWindow(num_steps=2)
    assert window.hit_rate == 0.0
    window.add(100, 0)
    window.add(50, 50)
    assert window.hit_rate == pytest.approx(1 / 3)
    window.add(0, 0)  # a step that asked nothing leaves the window as it is
    window.add(50, 50)
    assert window.hit_rate == 1.0


def test_the_line_about_speculation_word_for_word() -> None:
    assert speculation_line(totals((3, 3, 0), (3, 1, 0), (2, 0, 0)), 10.0) == (
        "SpecDecoding metrics: Mean acceptance length: 2.33, Accepted throughput: 0.40 tokens/s, "
        "Drafted throughput: 0.80 tokens/s, Accepted: 4 tokens, Drafted: 8 tokens, "
        "Per-position acceptance rate: 0.667, 0.333, 0.333, Avg Draft acceptance rate: 50.0%"
    )


def test_the_line_about_a_request_word_for_word() -> None:
    metrics = SpecDecodeMetrics(num_spec_tokens=4)
    metrics.record(DraftStats(drafted=4, accepted=3, discarded=0))
    metrics.record(DraftStats(drafted=3, accepted=1, discarded=1))
    assert request_line(metrics) == "draft acceptance rate = 0.57143 (    4 accepted /     7 generated)"


STEP = StepStats(
    num_running=2,
    num_waiting=1,
    num_prompt_tokens=50,
    num_generation_tokens=30,
    kv_cache_usage=0.125,
    prefix_queries=50,
    prefix_hits=25,
    drafts=[DraftStats(3, 2, 0)],
)
GENERAL = (
    "Engine 000: Avg prompt throughput: 5.0 tokens/s, Avg generation throughput: 3.0 tokens/s, "
    "Running: 2 reqs, Waiting: 1 reqs, CPU KV cache usage: 12.5%, Prefix cache hit rate: 50.0%"
)


def test_lines_are_due_every_ten_seconds() -> None:
    log = PeriodicLog(now=100.0, num_spec_tokens=3)
    log.add(STEP)
    assert log.lines(109.9) == []
    (general, speculation) = log.lines(110.0)
    assert general == (logging.INFO, GENERAL)
    assert speculation[0] == logging.INFO
    assert speculation[1].startswith("SpecDecoding metrics: Mean acceptance length: 3.00, ")
    assert log.lines(110.1) == []


def test_throughput_is_per_second_since_the_last_line() -> None:
    log = PeriodicLog(now=0.0)
    log.add(StepStats(num_prompt_tokens=50, num_generation_tokens=30))
    (line,) = log.lines(20.0)
    assert "Avg prompt throughput: 2.5 tokens/s, Avg generation throughput: 1.5 tokens/s" in line[1]


def test_counts_begin_anew_after_each_line() -> None:
    log = PeriodicLog(now=0.0, num_spec_tokens=3)
    log.add(STEP)
    log.lines(10.0)
    log.add(StepStats(num_generation_tokens=10, drafts=[DraftStats(3, 0, 0)]))
    lines = [line for _, line in log.lines(20.0)]
    assert "generation throughput: 1.0" in lines[0]
    assert "Prefix cache hit rate: 50.0%" in lines[0]
    assert "Mean acceptance length: 1.00" in lines[1]


def test_there_is_no_line_about_speculation_without_drafts() -> None:
    log = PeriodicLog(now=0.0, num_spec_tokens=3)
    log.add(StepStats(num_generation_tokens=5))
    assert len(log.lines(10.0)) == 1


def test_an_idle_engine_falls_silent_after_one_line() -> None:
    log = PeriodicLog(now=0.0)
    log.add(STEP_WITHOUT_DRAFTS)
    levels = [log.lines(now)[0][0] for now in (10.0, 20.0, 30.0)]
    log.add(STEP_WITHOUT_DRAFTS)
    levels.append(log.lines(40.0)[0][0])
    assert levels == [logging.INFO, logging.INFO, logging.DEBUG, logging.INFO]


STEP_WITHOUT_DRAFTS = StepStats(num_generation_tokens=1)


def test_preemptions_are_named_when_there_were_any() -> None:
    log = PeriodicLog(now=0.0, device="GPU", engine=7)
    log.add(StepStats(num_generation_tokens=1, num_preemptions=2))
    line = log.lines(10.0)[0][1]
    assert line.startswith("Engine 007: ")
    assert "Waiting: 0 reqs, Preemptions: 2, GPU KV cache usage: 0.0%" in line
    assert "Preemptions" not in log.lines(20.0)[0][1]
