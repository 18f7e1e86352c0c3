"""A server's counters are read from its own text, and become acceptance and parts of steps."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from specserve.bench.acceptance import Acceptance, from_counters, from_histogram
from specserve.bench.counters import Counters, read_counters, step_figures
from specserve.metrics.prometheus import PrometheusMetrics
from specserve.types import DraftStats, StepStats

TEXT = """\
# HELP vllm:spec_decode_num_drafts_total x
vllm:spec_decode_num_drafts_total{engine="0",model_name="a b"} 4.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="a } b"} 6.0 1700000000
vllm:spec_decode_num_draft_tokens_total{engine="0"} 3e1
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 15
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 5
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 8
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 2
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",position="0"} 1.7e9
nonsense
half{a="b" 3
process_start_time_seconds NaN?
"""


def test_engines_are_added_up() -> None:
    found = read_counters(TEXT)
    assert found.values["vllm:spec_decode_num_drafts_total"] == 10
    assert from_counters(found) == Acceptance(10, 30, 15, (8, 5, 2))


def test_the_difference_counts() -> None:
    before = read_counters(TEXT)
    after = read_counters(TEXT.replace("4.0", "14.0").replace("} 15", "} 35").replace("} 8", "} 18"))
    assert from_counters(after.since(before)) == Acceptance(10, 0, 20, (10, 0, 0))
    assert from_counters(before.since(before)) is None
    assert from_counters(Counters()) is None


def test_rates_are_those_of_vllm() -> None:
    found = Acceptance(10, 30, 15, (8, 5, 2)).figures()
    assert found["spec_decode_acceptance_rate"] == 50.0
    assert found["spec_decode_acceptance_length"] == 2.5
    assert found["acceptance_per_position"] == [0.8, 0.5, 0.2]
    assert Acceptance().figures()["spec_decode_acceptance_length"] == 1.0


def test_a_histogram_says_how_often_each_position_was_reached() -> None:
    assert from_histogram(12, 6, [1, 2, 0, 1]) == Acceptance(4, 12, 5 + 1, (3, 1, 1))
    total = Acceptance(1, 2, 1, (1,)) + Acceptance(2, 6, 3, (1, 1, 1))
    assert total == Acceptance(3, 8, 4, (2, 1, 1))


def test_our_own_metrics_are_understood() -> None:
    metrics = PrometheusMetrics("m", 2, 100)
    registry = metrics.registry
    empty = read_counters(generate_latest(registry).decode())
    assert empty.is_ours
    assert step_figures(empty) == {}
    step = StepStats(
        num_running=1,
        num_rows=3,
        num_generation_tokens=2,
        num_emitting=1,
        num_emitted=2,
        drafts=[DraftStats(2, 1, 0)],
        forward_seconds=0.010,
        verify_seconds=0.001,
        draft_seconds=0.002,
        step_seconds=0.016,
        native_seconds=0.009,
    )
    for _ in range(3):
        metrics.record(step)
    found = read_counters(generate_latest(registry).decode()).since(empty)
    assert from_counters(found) == Acceptance(3, 6, 3, (3, 0))
    figures = step_figures(found)
    assert (figures["num_steps"], figures["tokens_per_step"]) == (3, 2.0)
    parts = {name: figures[f"{name}_ms"] for name in ("step", "target", "draft", "verify", "host")}
    assert parts == pytest.approx({"step": 16, "target": 10, "draft": 2, "verify": 1, "host": 4})


def test_another_server_tells_no_steps() -> None:
    assert not read_counters(TEXT).is_ours
    assert step_figures(read_counters(TEXT)) == {}
