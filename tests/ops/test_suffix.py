"""Both trees count what a search counts, and guess alike, through texts that grow side by side and leave."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specserve.ops.suffix import NO_TEXT, Forest, Limits, Tree, make_forest
from tests.support.native import library

fixed = settings(derandomize=True, deadline=None, database=None)
kinds = pytest.mark.parametrize("kind", ["python", "native"])


def forest(kind: str, depth: int) -> Forest:
    return make_forest(depth, None if kind == "python" else library())


def make(kind: str, depth: int) -> Tree:
    return forest(kind, depth).plant()


def filled(kind: str, depth: int, *texts: Sequence[int]) -> Tree:
    tree = make(kind, depth)
    for text in texts:
        tree.append(tree.start(), text)
    return tree


def strings(texts: list[list[int]], depth: int) -> dict[tuple[int, ...], int]:
    """The definition: every substring of up to `depth` tokens, and how often it occurs."""
    counts: dict[tuple[int, ...], int] = {}
    for text in texts:
        for start in range(len(text)):
            for end in range(start + 1, min(start + depth, len(text)) + 1):
                string = tuple(text[start:end])
                counts[string] = counts.get(string, 0) + 1
    return counts


# --- growth, ends and evictions ---------------------------------------------------------------

# Tokens for the text that the first number chooses, or: 0 a new text, 1 that one ends, 2 the oldest leaves.
deeds = st.lists(
    st.tuples(st.integers(0, 5), st.one_of(st.integers(0, 2), st.lists(st.integers(0, 3), max_size=12))),
    max_size=30,
)
depths = st.sampled_from([1, 2, 3, 5, 24])
limits = st.builds(
    Limits, st.integers(0, 12), st.sampled_from([0.0, 0.5, 1.0, 2.5]), st.sampled_from([0.0, 0.1, 0.4, 1.0])
)


class Shelf:
    """Does the same to several trees, and to lists."""

    def __init__(self, trees: list[Tree]) -> None:
        self.trees = trees
        self.texts: dict[int, list[int]] = {}
        self.ended: set[int] = set()

    def do(self, which: int, deed: int | list[int]) -> int:
        growing = [text for text in self.texts if text not in self.ended]
        text = growing[which % len(growing)] if growing else NO_TEXT
        if deed == 0 or not growing:
            [text] = {tree.start() for tree in self.trees}
            self.texts[text] = []
        elif deed == 2:
            for tree in self.trees:
                tree.evict()
            del self.texts[next(iter(self.texts))]
        else:
            for tree in self.trees:
                tree.finish(text) if deed == 1 else tree.append(text, deed)  # type: ignore[arg-type]
            self.ended |= {text} if deed == 1 else set()
            self.texts[text] += [] if isinstance(deed, int) else deed
        return text


@kinds
@fixed
@given(deeds, depths)
def test_counts_are_those_of_a_search(
    kind: str, deeds: list[tuple[int, int | list[int]]], depth: int
) -> None:
    tree = make(kind, depth)
    shelf = Shelf([tree])
    known: set[tuple[int, ...]] = {(9,), (0, 0)}
    for deed in deeds:
        shelf.do(*deed)
        held = list(shelf.texts.values())
        counts = strings(held, depth)
        known |= counts.keys()
        assert {string: tree.count(string) for string in known} == {s: counts.get(s, 0) for s in known}
        assert list(tree.contents()) == held
        assert (tree.num_texts, tree.num_tokens) == (len(held), sum(map(len, held)))


@fixed
@given(deeds, depths, limits, st.lists(st.integers(0, 3), max_size=8))
def test_both_trees_guess_alike(
    deeds: list[tuple[int, int | list[int]]], depth: int, limits: Limits, before: list[int]
) -> None:
    python, native = make("python", depth), make("native", depth)
    shelf = Shelf([python, native])
    for which, deed in deeds:
        text = shelf.do(which, deed)
        for name in (text, NO_TEXT):
            context = before + shelf.texts.get(text, [])
            expected, found = (tree.speculate(name, context, limits) for tree in (python, native))
            assert (found.tokens, found.score) == (expected.tokens, expected.score)
            assert found.match == expected.match or not found.tokens


@fixed
@given(deeds, depths)
def test_what_a_tree_guesses_depends_on_its_texts_not_on_its_past(
    deeds: list[tuple[int, int | list[int]]], depth: int
) -> None:
    lived = make("native", depth)
    shelf = Shelf([lived])
    for deed in deeds:
        shelf.do(*deed)
    fresh = filled("native", depth, *lived.contents())
    for first in range(4):
        for second in range(4):
            guesses = [
                tree.speculate(NO_TEXT, [0, first, second], Limits(8)).tokens for tree in (lived, fresh)
            ]
            assert guesses[0] == guesses[1]


@kinds
def test_nothing_is_left_when_all_texts_have_left(kind: str) -> None:
    trees = forest(kind, 24)
    tree = trees.plant()
    empty = trees.num_bytes
    for _ in range(3):
        texts = [tree.start() for _ in range(4)]
        for i in range(400):
            tree.append(texts[i % 4], [i * i % 7, i % 5])
        assert trees.num_bytes > empty
        for text in texts[1:]:
            tree.finish(text)
            tree.evict()
        tree.evict()
        assert (trees.num_bytes, tree.num_tokens, tree.count([1])) == (empty, 0, 0)
    tree.append(texts[0], [1])
    tree.finish(texts[0])
    assert tree.num_tokens == 0


@kinds
def test_trees_of_a_forest_share_its_memory_and_nothing_else(kind: str) -> None:
    trees = forest(kind, 4)
    one = trees.plant()
    one.append(one.start(), [1, 2, 3] * 20)
    held = trees.num_bytes
    other = trees.plant()
    other.append(other.start(), [3, 2, 1] * 20)
    assert (one.count([1, 2]), one.count([2, 1]), other.count([1, 2]), other.count([2, 1])) == (20, 0, 0, 20)
    del other
    gc.collect()
    assert trees.num_bytes == held
    assert list(one.contents()) == [[1, 2, 3] * 20]


def test_many_children_come_and_go() -> None:
    python, native = make("python", 3), make("native", 3)
    shelf = Shelf([python, native])
    for text in range(40):
        shelf.do(0, 0)
        shelf.do(text, [token for i in range(60) for token in (7, 1000 * (i % (2 + text)) + 13)])
        if text % 3 == 2:
            shelf.do(0, 2)
        for token in range(0, 40_000, 1000):
            assert native.count([7, token + 13]) == python.count([7, token + 13])
        guesses = [tree.speculate(NO_TEXT, [7, 7], Limits(2, 2.0, 0.0)) for tree in (python, native)]
        assert guesses[0].tokens == guesses[1].tokens
    while python.num_texts:
        shelf.do(0, 2)
        assert native.speculate(NO_TEXT, [7, 7], Limits(9)).tokens == (
            python.speculate(NO_TEXT, [7, 7], Limits(9)).tokens
        )


# --- the rules, one by one --------------------------------------------------------------------


@kinds
def test_an_ending_that_occurred_once_before_promises_half_its_continuation(kind: str) -> None:
    text = [1, 2, 3, 4, 5, 6, 1, 2, 3]
    guess = filled(kind, 24, text).speculate(0, text, Limits(8))
    assert (guess.tokens, guess.score, guess.match) == ([4, 5, 6], 1.5, 3)


@kinds
def test_the_number_of_guesses_grows_with_the_match_and_the_factor(kind: str) -> None:
    text = [*range(20), 0, 1, 2]
    tree = filled(kind, 24, text)
    for factor, expected in ((1.0, 3), (0.7, 2), (2.5, 7), (0.0, 0), (1 / 3 - 1e-9, 1)):
        assert len(tree.speculate(0, text, Limits(64, factor)).tokens) == expected
    assert tree.speculate(0, text, Limits(2)).tokens == [3, 4]


@kinds
def test_match_and_guesses_together_are_no_longer_than_the_depth(kind: str) -> None:
    text = [*range(30), *range(20)]
    assert len(filled(kind, 24, text).speculate(0, text, Limits(64)).tokens) == 12
    assert len(filled(kind, 24, text).speculate(0, text, Limits(64, 64.0)).tokens) == 23
    assert filled(kind, 1, text).speculate(0, text, Limits(64)).tokens == []


@kinds
def test_guesses_stop_where_their_joint_probability_gets_too_small(kind: str) -> None:
    tree = filled(kind, 24, [1, 2, 3], [1, 2, 4], [1, 5], [1, 5, 6], [1, 5, 6])
    for least, expected in ((0.0, [5, 6]), (0.4, [5, 6]), (0.41, [5]), (0.61, [])):
        assert tree.speculate(NO_TEXT, [0, 1], Limits(8, 2.0, least)).tokens == expected


@kinds
def test_the_more_frequent_continuation_wins_and_among_equals_the_youngest(kind: str) -> None:
    texts = [[1, 2], [1, 3], [1, 3], [1, 2], [1, 4]]
    tree = filled(kind, 24, *texts)
    for expected in (2, 3, 4, 4, 4):  # of 2, 3 and 4 there are (2, 2, 1), (1, 2, 1), (1, 1, 1), …
        found = tree.speculate(NO_TEXT, [0, 1], Limits(1)).tokens
        assert found == [expected]
        tree.evict()


@kinds
def test_the_last_occurrence_in_the_youngest_text_counts_not_the_last_that_was_added(kind: str) -> None:
    tree = filled(kind, 24, [1, 2], [1, 3])
    assert tree.speculate(NO_TEXT, [0, 1], Limits(1)).tokens == [3]
    tree.append(0, [9, 1, 4])
    assert tree.speculate(NO_TEXT, [0, 1], Limits(1)).tokens == [3]
    tree.append(1, [9, 1, 5])
    assert tree.speculate(NO_TEXT, [0, 1], Limits(1)).tokens == [5]


@kinds
def test_equal_scores_go_to_the_longer_ending(kind: str) -> None:
    # One token: 9 with 1/1. Two tokens: 9 with 1/1, then 8, whose joint probability is too small.
    tree = filled(kind, 24, [5, 1, 9], [7, 5, 1, 9])
    guess = tree.speculate(NO_TEXT, [0, 5, 1], Limits(1))
    assert (guess.tokens, guess.match) == ([9], 2)


@kinds
def test_the_whole_context_is_never_the_ending(kind: str) -> None:
    tree = filled(kind, 24, [1, 2, 3])
    assert tree.speculate(NO_TEXT, [2], Limits(8)).tokens == []
    assert tree.speculate(NO_TEXT, [], Limits(8)).tokens == []
    assert tree.speculate(NO_TEXT, [1, 2], Limits(8)).match == 1
