"""What is remembered of whom: bounds in texts and in bytes, and who loses what to whom."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from specserve.draft.suffix_store import BYTES_PER_TOKEN, Place, Stores
from specserve.ops.suffix import NO_TEXT, Forest, Limits, make_forest
from tests.support.native import library

DEPTH = 8


def native(depth: int = DEPTH) -> Forest:
    return make_forest(depth, library())


def stores(max_texts: int = 100, max_bytes: int = 2**30, forest: Forest | None = None) -> Stores:
    return Stores((forest or native()).plant, DEPTH, max_texts, max_bytes)


def is_known(place: Place, first: int) -> bool:
    """Whether the tree of `place` knows what follows `first`."""
    return bool(place.tree.speculate(NO_TEXT, [0, first], Limits(1)).tokens)


def test_a_tenant_keeps_its_youngest_texts() -> None:
    held = stores(max_texts=2)
    places = [held.remember("a", [10 * i, 10 * i + 1]) for i in range(1, 5)]
    other = held.remember("b", [10, 11])
    assert [is_known(places[-1], 10 * i) for i in range(1, 5)] == [False, False, True, True]
    assert is_known(other, 10)


def test_a_text_that_was_dropped_may_go_on_and_counts_for_nothing() -> None:
    held = stores(max_texts=1)
    first = held.start("a")
    held.append(first, [1, 2, 3])
    second = held.remember("a", [4, 5])
    before = held.num_bytes
    held.append(first, [6] * 50)
    held.finish(first)
    assert held.num_bytes == before
    assert (is_known(second, 4), is_known(second, 1), is_known(second, 6)) == (True, False, False)


def test_memory_keeps_to_its_bound_and_is_used() -> None:
    random, forest = Random(0), native()
    for max_bytes in (100_000, 300_000):
        held = stores(max_bytes=max_bytes, forest=forest)
        for i in range(300):
            held.remember(f"{i % 3}", [random.randrange(50) for _ in range(random.randint(1, 200))])
            assert forest.num_bytes < held.num_bytes <= max_bytes
        assert held.num_bytes > 0.7 * max_bytes


def test_who_holds_less_than_the_others_loses_nothing_to_them() -> None:
    held = stores(max_bytes=60_000)
    small = [held.remember("small", [10 * i, 10 * i + 1]) for i in range(1, 4)]
    for i in range(200):
        held.remember(f"large{i % 2}", [7] * 100)
    assert all(is_known(small[0], 10 * i) for i in range(1, 4))


def test_the_tenant_who_holds_most_is_found_as_a_search_would_find_him() -> None:
    random, found = Random(5), stores(max_texts=6, max_bytes=400_000)
    open_places: list[Place] = []
    for _ in range(3000):
        if random.random() < 0.4 or not open_places:
            open_places.append(found.start(f"t{random.randrange(80)}"))
        found.append(random.choice(open_places), [1] * random.randint(1, 60))
        del open_places[:-20]
        if found._trees:
            assert found._largest() == max(found._trees, key=found._share)
    assert len(found._by_share) < 10 * len(found._trees)


def test_any_number_of_tenants_fits() -> None:
    held = stores(max_bytes=50_000)
    places = [held.remember(f"{i}", [1, 2, 3]) for i in range(500)]
    assert held.num_bytes <= 50_000
    known = [is_known(place, 1) for place in places]
    assert known[-1]
    assert not known[0]
    assert 10 < sum(known) < 50


@pytest.mark.parametrize("max_bytes", [0, 5_000])
def test_a_text_too_long_for_the_bound_is_not_remembered(max_bytes: int) -> None:
    held = stores(max_bytes=max_bytes)
    place = held.remember("a", list(range(200)))
    assert (held.num_bytes, is_known(place, 1)) == (0, False)


def test_what_is_dropped_depends_on_lengths_only() -> None:
    """The other tenant's texts are of one kind or another, of equal lengths."""
    lengths = [Random(1).randint(1, 60) for _ in range(200)]
    found = []
    for alphabet in (1, 2, 5000):
        random, held = Random(alphabet), stores(max_bytes=40_000)
        mine = [held.start("mine")]
        for i, length in enumerate(lengths):
            held.remember("other", [random.randrange(alphabet) for _ in range(length)])
            mine.append(held.remember("mine", [10_000 + i] * (length // 2)))
        found.append([is_known(place, 10_000 + i) for i, place in enumerate(mine[1:])])
        assert 5 < sum(found[-1]) < 150
    assert found[0] == found[1] == found[2]


# --- bytes ------------------------------------------------------------------------------------


def prose(num_tokens: int) -> list[list[int]]:
    """About as many, of phrases that come back."""
    random = Random(4)
    phrases = [[random.randrange(5000) for _ in range(random.randint(1, 30))] for _ in range(300)]
    return [[token for _ in range(12) for token in random.choice(phrases)] for _ in range(num_tokens // 180)]


def shapes(num_tokens: int) -> dict[str, list[list[int]]]:
    """Texts that need few bytes per token, many, and as many as possible."""
    random = Random(4)
    found = {"prose": prose(num_tokens), "constant": [[7] * num_tokens]}
    for alphabet, length in product((2, 4, 30, 5000), (1, 3, 60, 2000)):
        texts = [[random.randrange(alphabet) for _ in range(length)] for _ in range(num_tokens // length)]
        found[f"{alphabet} ids, {length} long"] = texts
    return found


@pytest.mark.parametrize("evicting", [False, True])
def test_the_stated_bytes_are_never_exceeded(evicting: bool) -> None:
    for name, texts in shapes(12_000).items():
        forest = native()
        held = stores(max_texts=len(texts) // 3 + 1 if evicting else len(texts), forest=forest)
        for text in texts:
            held.remember("", text)
            assert forest.num_bytes <= held.num_bytes, name


def test_prose_takes_half_of_the_stated_bytes() -> None:
    forest = native(24)
    tree = forest.plant()
    for text in prose(60_000):
        tree.append(tree.start(), text)
    assert 15 < forest.num_bytes / tree.num_tokens < 0.6 * BYTES_PER_TOKEN
