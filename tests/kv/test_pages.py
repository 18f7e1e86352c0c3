"""Who owns which page, who may share it, and whose is overwritten first."""

from __future__ import annotations

from random import Random

import pytest

from specserve.kv.pages import BlockTable, PageAllocator
from specserve.kv.prefix import root_key

ROOT = root_key("a")


def table(pages: PageAllocator, num_slots: int, root: bytes | None = ROOT) -> BlockTable:
    made = BlockTable(root)
    assert pages.reserve(made, num_slots)
    return made


def filled(pages: PageAllocator, tokens: list[int], num_true: int | None = None) -> BlockTable:
    """A released table whose full pages were shared."""
    made = table(pages, len(tokens))
    pages.share(made, tokens, len(tokens) if num_true is None else num_true)
    held = list(made.pages)
    pages.release(made)
    made.pages[:] = held
    return made


def matched(pages: PageAllocator, tokens: list[int], root: bytes | None = ROOT) -> list[int]:
    return pages.match(root, tokens, len(tokens) - 1)[0]


def test_reserve_takes_just_the_missing_pages() -> None:
    pages = PageAllocator(4, page_size=4)
    made = table(pages, 5)
    assert (len(made.pages), pages.num_free, pages.usage) == (2, 2, 0.5)
    assert pages.reserve(made, 8)
    assert pages.num_free == 2
    assert pages.num_missing(made, 3) == 0
    assert pages.reserve(made, 3)
    assert pages.num_missing(made, 9) == 1


def test_too_few_free_pages_change_nothing() -> None:
    pages = PageAllocator(2, page_size=4)
    made = table(pages, 4)
    assert not pages.reserve(made, 13)
    assert (len(made.pages), pages.num_free) == (1, 1)
    assert pages.reserve(made, 8)


def test_released_pages_are_free_once() -> None:
    pages = PageAllocator(3, page_size=4)
    made = table(pages, 12)
    pages.release(made)
    pages.release(made)
    assert pages.num_free == 3
    assert (made.pages, made.keys) == ([], [])


def test_only_full_and_true_pages_are_shared() -> None:
    pages = PageAllocator(8, page_size=4)
    tokens = list(range(12))
    made = filled(pages, tokens, num_true=11)
    assert matched(pages, tokens) == made.pages[:2]
    assert matched(pages, [*tokens[:4], 99, *tokens[5:]]) == made.pages[:1]
    assert matched(pages, [99, *tokens[1:]]) == []


def test_a_match_never_covers_the_last_known_token() -> None:
    pages = PageAllocator(8, page_size=4)
    made = filled(pages, list(range(8)))
    assert matched(pages, list(range(8))) == made.pages[:1]
    assert matched(pages, list(range(9))) == made.pages
    assert matched(pages, list(range(5))) == made.pages[:1]
    assert matched(pages, list(range(4))) == []


def test_tenants_do_not_meet_and_the_rootless_neither_look_nor_offer() -> None:
    pages = PageAllocator(8, page_size=2)
    made = filled(pages, [1, 2, 3])
    assert matched(pages, [1, 2, 3], root_key("b")) == []
    assert matched(pages, [1, 2, 3], None) == []
    other = table(pages, 3, root=None)
    pages.share(other, [7, 8, 9], 3)
    assert (other.keys, matched(pages, [7, 8, 9])) == ([], [])
    assert matched(pages, [1, 2, 3]) == made.pages[:1]


def test_a_shared_page_is_free_when_its_last_owner_lets_go() -> None:
    pages = PageAllocator(4, page_size=2)
    first = table(pages, 3)
    pages.share(first, [1, 2, 3], 3)
    second = BlockTable(ROOT)
    found, keys = pages.match(ROOT, [1, 2, 3], 2)
    pages.adopt(second, found, keys)
    assert second.pages == first.pages[:1]
    pages.release(first)
    assert pages.num_free == 3
    pages.release(second)
    assert pages.num_free == 4


def test_a_successor_must_be_known_true_and_equal() -> None:
    pages = PageAllocator(8, page_size=4, successors=1)
    made = table(pages, 8)
    pages.share(made, list(range(8)), 8)
    assert len(made.keys) == 1, "the second page's successor is not known yet"
    assert matched(pages, [0, 1, 2, 3, 99, 5]) == []
    assert matched(pages, [0, 1, 2, 3, 4]) == made.pages[:1]
    pages.share(made, list(range(9)), 8)
    assert matched(pages, [*range(9), 7]) == made.pages
    assert matched(pages, list(range(9))) == made.pages
    assert matched(pages, list(range(8))) == made.pages[:1]


@pytest.mark.parametrize("successors", [0, 1, 3])
def test_pages_shared_in_parts_are_those_shared_at_once(successors: int) -> None:
    tokens = [Random(successors).randrange(9) for _ in range(30)]
    pages = PageAllocator(16, page_size=4, successors=successors)
    made = table(pages, 30)
    for num_true in range(31):
        pages.share(made, tokens[: min(30, num_true + 1)], num_true)
    once = PageAllocator(16, page_size=4, successors=successors)
    other = table(once, 30)
    once.share(other, tokens, 30)
    assert made.keys == other.keys
    assert len(made.keys) == (30 - successors) // 4


def test_a_sequences_end_is_overwritten_first() -> None:
    pages = PageAllocator(3, page_size=2)
    made = filled(pages, list(range(6)))
    fresh = table(pages, 2, root=None)
    assert fresh.pages == [made.pages[2]]
    assert matched(pages, list(range(7))) == made.pages[:2]


def test_pages_nobody_can_find_go_before_findable_ones_released_earlier() -> None:
    pages = PageAllocator(2, page_size=2)
    made = filled(pages, [1, 2])
    hidden = table(pages, 2, root=None)
    assert hidden.pages != made.pages
    pages.release(hidden)
    table(pages, 2, root=None)
    assert matched(pages, [1, 2, 3]) == made.pages


def test_the_least_recently_used_content_is_lost_first() -> None:
    pages = PageAllocator(3, page_size=2)
    for first in (1, 3, 5):
        filled(pages, [first, first])
    again = BlockTable(ROOT)
    pages.adopt(again, *pages.match(ROOT, [1, 1, 0], 2))
    pages.release(again)
    table(pages, 2, root=None)
    assert [len(matched(pages, [first, first, 0])) for first in (1, 3, 5)] == [1, 0, 1]


def test_an_overwritten_page_breaks_the_chain_behind_it_only() -> None:
    pages = PageAllocator(3, page_size=2)
    made = filled(pages, list(range(6)))
    table(pages, 2, root=None)
    table(pages, 2, root=None)
    assert matched(pages, list(range(7))) == made.pages[:1]


def test_a_reset_forgets_content_but_no_owner() -> None:
    pages = PageAllocator(4, page_size=2)
    made = table(pages, 4)
    pages.share(made, [1, 2, 3, 4], 4)
    pages.reset_prefix_cache()
    assert matched(pages, [1, 2, 3]) == []
    pages.release(made)
    assert pages.num_free == 4


def test_slots_round_up_to_pages() -> None:
    pages = PageAllocator(4, page_size=4)
    assert [pages.num_pages_for(n) for n in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]
