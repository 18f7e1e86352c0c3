"""Arrivals keep the rate that was asked for, and the spread of their distribution."""

from __future__ import annotations

from itertools import pairwise
from math import log
from statistics import mean, pstdev

import pytest

from specserve.bench.arrivals import arrival_times, ramped


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise([0.0, *times])]


def test_an_infinite_rate_is_all_at_once() -> None:
    assert arrival_times(3, float("inf")) == [0.0, 0.0, 0.0]
    assert arrival_times(0, 5.0) == []


@pytest.mark.parametrize(("burstiness", "spread"), [(1.0, 1.0), (0.25, 2.0), (100.0, 0.1)])
def test_the_spread_of_gaps_is_one_over_the_root_of_the_shape(burstiness: float, spread: float) -> None:
    found = gaps(arrival_times(20_000, 4.0, burstiness=burstiness, seed=1))
    assert mean(found) == pytest.approx(0.25)
    assert pstdev(found) / mean(found) == pytest.approx(spread, rel=0.03)
    assert min(found) >= 0


def test_few_requests_keep_the_rate_too() -> None:
    assert arrival_times(5, 2.0, seed=3)[-1] == pytest.approx(2.5)


def test_a_seed_repeats() -> None:
    assert arrival_times(9, 2.0, seed=3) == arrival_times(9, 2.0, seed=3) != arrival_times(9, 2.0, seed=4)


def test_a_ramp_goes_from_its_first_rate_to_its_last() -> None:
    assert ramped(3, "linear", 1.0, 5.0) == [1.0, 3.0, 5.0]
    assert ramped(3, "exponential", 1.0, 4.0) == pytest.approx([1.0, 2.0, 4.0])
    assert ramped(1, "linear", 1.0, 5.0) == [1.0]
    found = gaps(arrival_times(10_000, float("inf"), ramp=("linear", 1.0, 9.0), burstiness=50.0))
    assert mean(found[:1000]) == pytest.approx(log(1.8) / 0.8, rel=0.02)
    assert mean(found[-1000:]) == pytest.approx(log(9 / 8.2) / 0.8, rel=0.02)
