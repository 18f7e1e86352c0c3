"""Counts kept up to date equal counts made anew, for every row of every step."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from specserve.sampling.counts import TokenCounts

V = 12
IDS = st.lists(st.integers(-2, V + 2), max_size=12)


def as_sets(counts: TokenCounts, output: list[int], draft: list[int]) -> list[set[tuple[int, int]]]:
    rows, ids, numbers = counts.entries(output, draft)
    found: list[set[tuple[int, int]]] = [set() for _ in range(1 + len(draft))]
    for row, token, count in zip(rows.tolist(), ids.tolist(), numbers.tolist(), strict=True):
        assert token not in {seen for seen, _ in found[row]}, "a pair occurs twice"
        found[row].add((token, count))
    return found


def anew(prompt: list[int], output: list[int], draft: list[int]) -> list[set[tuple[int, int]]]:
    result = []
    for row in range(1 + len(draft)):
        written = Counter(token for token in [*output, *draft[:row]] if 0 <= token < V)
        seen = set(written) | {token for token in prompt if 0 <= token < V}
        result.append({(token, written[token]) for token in seen})
    return result


@settings(deadline=None)
@given(IDS, st.lists(st.tuples(IDS, IDS), max_size=6))
def test_entries_equal_a_recount(prompt: list[int], steps: list[tuple[list[int], list[int]]]) -> None:
    counts = TokenCounts(prompt, V)
    output: list[int] = []
    for emitted, draft in steps:
        assert as_sets(counts, output, draft) == anew(prompt, output, draft)
        output += emitted
    assert as_sets(counts, output, []) == anew(prompt, output, [])


def test_guesses_leave_no_trace() -> None:
    counts = TokenCounts([1], V)
    counts.entries([2], [3, 3, 4])
    assert as_sets(counts, [2], []) == [{(1, 0), (2, 1)}]


def test_asking_twice_about_the_same_output_counts_it_once() -> None:
    counts, output = TokenCounts([], V), [5, 5]
    for _ in range(2):
        assert as_sets(counts, output, []) == [{(5, 2)}]


def test_a_shorter_output_is_counted_anew() -> None:
    counts = TokenCounts([1], V)
    counts.entries([5, 5, 6], [])
    assert as_sets(counts, [6], []) == [{(1, 0), (6, 1)}]


def test_each_output_token_is_read_once() -> None:
    class Watched(list[int]):
        num_read = 0

        def __getitem__(self, key):  # type: ignore[no-untyped-def]
            found = super().__getitem__(key)
            self.num_read += len(found) if isinstance(key, slice) else 1
            return found

    counts, output = TokenCounts([], V), Watched()
    for step in range(50):
        output.append(step % V)
        counts.entries(output, [1, 2])
    assert output.num_read == 50
