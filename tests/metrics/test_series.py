"""The pieces metrics are declared from."""

from __future__ import annotations

import pytest

from specserve.metrics.series import each, length_buckets, limits, of_answered, of_finished, one
from specserve.types import FinishedStats, StepStats


def finished(num_generation_tokens: int) -> FinishedStats:
    return FinishedStats("stop", 0.0, 1.0, 2.0, 5.0, 10, num_generation_tokens, 0, 0, None, 1)


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        (1, [1]),
        (2, [1, 2]),
        (99, [1, 2, 5, 10, 20, 50]),
        (100, [1, 2, 5, 10, 20, 50, 100]),
        (8192, [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]),
    ],
)
def test_length_buckets_end_at_the_context_length(longest: int, expected: list[int]) -> None:
    assert list(length_buckets(longest)) == expected


def test_limits_are_read_from_text() -> None:
    assert limits(".001 .5 1 20") == (0.001, 0.5, 1.0, 20.0)


def test_readers_give_numbers_of_a_step() -> None:
    stats = StepStats(num_running=3, inter_token_latency=[0.1, 0.2], finished=[finished(0), finished(4)])
    assert list(one(lambda s: s.num_running)(stats)) == [((), 3)]
    assert list(each(lambda s: s.inter_token_latency)(stats)) == [((), 0.1), ((), 0.2)]
    assert list(of_finished(lambda r: r.num_generation_tokens)(stats)) == [((), 0), ((), 4)]
    assert list(of_answered(lambda r: r.last_token)(stats)) == [((), 5.0)]
