"""k by the number of running requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specserve.draft.config_table import lookup, read_table
from specserve.errors import ConfigError


def test_the_documented_example() -> None:
    lengths = lookup(read_table([(1, 16, 3), (32, 128, 2), (256, 2048, 0)]), 3, 2048)
    assert len(lengths) == 2049
    expected = {0: 0, 1: 3, 16: 3, 17: 3, 31: 3, 32: 2, 129: 2, 255: 2, 256: 0, 2048: 0}
    assert {size: lengths[size] for size in expected} == expected


def test_the_last_number_goes_on_and_none_exceeds_the_most() -> None:
    assert lookup(read_table([[1, 1, 9], [3, 3, 1]]), 4, 6) == (0, 4, 4, 1, 1, 1, 1)


def test_without_a_table_the_number_is_fixed() -> None:
    assert lookup(None, 4, 3) == (0, 4, 4, 4)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "must not be empty"),
        ([[1, 2]], "must hold [first, last, k] of integers"),
        ([5], "must hold [first, last, k] of integers"),
        ([[1, 2, 1.5]], "must hold [first, last, k] of integers"),
        ([[1, True, 1]], "must hold [first, last, k] of integers"),
        ([[0, 2, 1]], "must have 1 <= first <= last"),
        ([[3, 2, 1]], "must have 1 <= first <= last"),
        ([[1, 2, -1]], "values must be >= 0"),
        ([[2, 3, 1]], "must start at 1"),
        ([[1, 4, 1], [4, 5, 1]], "must be sorted and without overlap"),
        ([[1, 4, 1], [9, 9, 1], [5, 6, 1]], "must be sorted and without overlap"),
    ],
)
def test_a_table_that_cannot_be(items: list[Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_table(items)
    assert message in str(caught.value)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=5),
    st.integers(1, 9),
)
def test_the_lookup_is_the_range_that_began_last(steps: list[tuple[int, int, int]], k: int) -> None:
    ranges, first = [], 1
    for width, gap, tokens in steps:
        ranges.append((first, first + width - 1, tokens))
        first += width + gap
    lengths = lookup(read_table(ranges), k, 40)
    for size in range(1, 41):
        began = [tokens for start, _, tokens in ranges if start <= size]
        assert lengths[size] == min(began[-1], k)
