"""Prompt lookup: the reference vectors, and the index against the definition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specserve.draft.ngram import NgramDrafter, Options, build, find
from specserve.types import Ask, AskBatch

HUNDREDS = [1, 2, 3, 100, 1, 2, 3, 200, 1, 2, 3, 300, 1, 2, 3]


def guess(drafter: NgramDrafter, tokens: list[int], k: int, seq_id: int = 0) -> list[int]:
    return drafter.propose(AskBatch([Ask(seq_id, tokens, k, 0.0, 0)])).tokens[0]


def both(tokens: list[int], options: Options, k: int) -> list[int]:
    found = find(tokens, options, k)
    assert guess(build(options, None), tokens, k) == found
    return found


@pytest.mark.parametrize(
    ("tokens", "low", "high", "k", "expected"),
    [
        ([1, 2, 3, 4, 1, 2, 3], 2, 2, 3, [4, 1, 2]),
        ([1, 3, 6, 2, 3, 4, 1, 2, 3], 1, 1, 2, [6, 2]),
        ([1, 3, 6, 2, 3, 4, 1, 2, 3], 2, 2, 3, [4, 1, 2]),
        ([2, 3, 4, 5, 1, 2, 3, 4, 1, 2, 3, 4], 3, 4, 2, [1, 2]),
        ([3, 4, 5, 2, 3, 4, 1, 2, 3, 4], 2, 4, 2, [1, 2]),
        (HUNDREDS, 3, 3, 2, [100, 1]),
        ([1, 2, 3, 4, 1, 2, 3], 4, 4, 2, []),
        ([1, 2, 3, 4, 1, 2, 3, 5, 6], 2, 2, 2, []),
    ],
)
def test_earliest_rule_gives_the_reference_vectors(
    tokens: list[int], low: int, high: int, k: int, expected: list[int]
) -> None:
    assert both(tokens, Options(low, high, "earliest"), k) == expected


@pytest.mark.parametrize(
    ("tokens", "size", "k", "expected"),
    [
        (HUNDREDS, 3, 2, [300, 1]),
        ([1, 2, 1, 2], 2, 3, [1, 2]),
        ([1, 2, 3, 42], 1, 2, []),
        ([1, 2, 3, 4, 1], 1, 2, [2, 3]),
    ],
)
def test_recent_rule_gives_the_reference_vectors_without_fillers(
    tokens: list[int], size: int, k: int, expected: list[int]
) -> None:
    assert both(tokens, Options(size, size), k) == expected


def test_an_occurrence_may_overlap_the_ending() -> None:
    assert both([1, 1, 1], Options(1, 2), 4) == [1]
    assert both([1, 1, 1, 1], Options(1, 2, "earliest"), 4) == [1, 1]


def test_a_longer_ending_wins_over_a_more_recent_shorter_one() -> None:
    tokens = [1, 2, 3, 9, 7, 3, 8, 1, 2, 3]
    assert both(tokens, Options(1, 3), 1) == [9]
    assert both(tokens, Options(1, 1), 1) == [8]


@pytest.mark.parametrize("tokens", [[], [1], [1, 2]])
def test_a_history_shorter_than_the_ending_gives_nothing(tokens: list[int]) -> None:
    assert both(tokens, Options(3, 5), 4) == []


def test_defaults_are_five_and_five() -> None:
    assert (Options().prompt_lookup_min, Options().prompt_lookup_max) == (5, 5)


fixed = settings(derandomize=True, deadline=None, database=None)
bounds = st.tuples(st.integers(1, 5), st.integers(0, 4)).map(lambda pair: (pair[0], sum(pair)))
rules = st.sampled_from(["recent", "earliest"])
histories = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@fixed
@given(histories, bounds, rules, st.integers(1, 8))
def test_the_index_equals_the_definition_token_by_token(
    tokens: list[int], bounds: tuple[int, int], rule: str, k: int
) -> None:
    options = Options(*bounds, rule)  # type: ignore[arg-type]
    drafter = NgramDrafter(options)
    for length in range(1, len(tokens) + 1):
        assert guess(drafter, tokens[:length], k) == find(tokens[:length], options, k)


@fixed
@given(histories, st.lists(st.integers(1, 40), min_size=1, max_size=8), bounds, rules)
def test_the_index_equals_the_definition_over_any_growth_and_shrinking(
    tokens: list[int], lengths: list[int], bounds: tuple[int, int], rule: str
) -> None:
    options = Options(*bounds, rule)  # type: ignore[arg-type]
    drafter = NgramDrafter(options)
    for length in lengths:
        assert guess(drafter, tokens[:length], 4) == find(tokens[:length], options, 4)


def test_history_that_got_shorter_leaves_no_memory_of_what_was_cut() -> None:
    drafter = NgramDrafter(Options(1, 2))
    assert guess(drafter, [5, 6, 7, 5], 2) == [6, 7]
    assert guess(drafter, [5, 8], 2) == []
    assert guess(drafter, [5, 8, 5], 2) == [8, 5]


def test_sequences_do_not_share_their_history() -> None:
    drafter = NgramDrafter(Options(1, 1))
    asks = AskBatch([Ask(0, [1, 2, 1], 1, 0.0, 0), Ask(1, [1, 3, 1], 1, 0.0, 0)])
    assert drafter.propose(asks).tokens == [[2], [3]]


def test_nothing_is_left_after_forget() -> None:
    drafter = NgramDrafter(Options(1, 1))
    guess(drafter, [1, 2, 1], 1, seq_id=7)
    drafter.forget([7, 8])
    assert not drafter._indexes
    assert guess(drafter, [1, 3, 1], 1, seq_id=7) == [3]
