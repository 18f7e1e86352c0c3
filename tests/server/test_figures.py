"""The figures beside a reply."""

from __future__ import annotations

from specserve.server import figures
from specserve.types import DraftStats, FinishedStats, SpecDecodeMetrics


def stats(first: float = 1.5, last: float = 3.5, tokens: int = 8) -> FinishedStats:
    return FinishedStats(
        finish_reason="stop",
        arrival=0.0,
        first_scheduled=1.0,
        first_token=first,
        last_token=last,
        num_prompt_tokens=10,
        num_generation_tokens=tokens,
        num_cached_tokens=6,
        num_preemptions=0,
        max_tokens=None,
        n=1,
    )


def test_speculation_that_was_off_says_so() -> None:
    shown = figures.speculation(SpecDecodeMetrics(num_spec_tokens=0))
    assert (shown["enabled"], shown["method"], shown["num_spec_tokens"]) == (False, None, 0)
    assert (shown["num_draft_tokens"], shown["acceptance_histogram"]) == (0, [0])


def test_usage_adds_up() -> None:
    assert figures.usage(3, 4, 2) == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    assert figures.usage(3, 4, None)["prompt_tokens_details"] is None


def test_speculation_counts_what_the_rule_accepted_and_what_was_kept() -> None:
    metrics = SpecDecodeMetrics(num_spec_tokens=3, method="ngram")
    for drafted, accepted, discarded, source in (
        (3, 3, 0, "b"),
        (3, 1, 0, "a"),
        (2, 0, 0, None),
        (3, 1, 1, "b"),
    ):
        metrics.record(DraftStats(drafted, accepted, discarded, source))
    assert figures.speculation(metrics) == {
        "enabled": True,
        "method": "ngram",
        "mean_acceptance_length": 2.25,
        "draft_acceptance_rate": 5 / 11,
        "acceptance_histogram": [1, 1, 1, 1],
        "acceptance_histogram_by_draft_length": {"2": [1, 0, 0], "3": [0, 1, 1, 1]},
        "num_spec_steps": 4,
        "num_draft_tokens": 11,
        "num_accepted_draft_tokens": 5,
        "num_discarded_draft_tokens": 1,
        "num_spec_tokens": 3,
        "by_source": {
            "a": {"num_spec_steps": 1, "num_draft_tokens": 3, "num_accepted_draft_tokens": 1},
            "b": {"num_spec_steps": 2, "num_draft_tokens": 6, "num_accepted_draft_tokens": 4},
        },
    }


def test_single_steps_are_listed_in_detail_only() -> None:
    metrics = SpecDecodeMetrics(num_spec_tokens=3, detailed=True)
    assert "per_step_drafted" not in figures.speculation(metrics)
    metrics.record(DraftStats(3, 1, 0))
    shown = figures.speculation(metrics)
    assert (shown["per_step_drafted"], shown["per_step_accepted"]) == ([3], [1])


def test_timings_leave_cached_tokens_out_of_the_prompt() -> None:
    assert figures.timings(stats(), None) == {
        "cache_n": 6,
        "prompt_n": 4,
        "prompt_ms": 500.0,
        "prompt_per_token_ms": 125.0,
        "prompt_per_second": 8.0,
        "predicted_n": 8,
        "predicted_ms": 2000.0,
        "predicted_per_token_ms": 250.0,
        "predicted_per_second": 4.0,
    }


def test_a_reply_of_one_token_has_finite_timings() -> None:
    shown = figures.timings(stats(last=1.5, tokens=1), None)
    assert shown["predicted_per_second"] == 0.0
