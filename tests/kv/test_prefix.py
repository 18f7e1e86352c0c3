"""Content keys and the index from key to page."""

from __future__ import annotations

from specserve.kv.prefix import PrefixIndex, page_key, root_key


def test_a_key_depends_on_root_tokens_and_order() -> None:
    base = page_key(root_key("a"), [1, 2, 3])
    assert base == page_key(root_key("a"), (1, 2, 3))
    others = [
        page_key(root_key("b"), [1, 2, 3]),
        page_key(root_key("a"), [1, 3, 2]),
        page_key(root_key("a"), [1, 2, 3, 0]),
        page_key(root_key("a"), [1, 2]),
        page_key(page_key(root_key("a"), [1]), [2, 3]),
    ]
    assert len({base, *others}) == 6


def test_ids_that_share_their_low_bytes_have_different_keys() -> None:
    root = root_key("")
    assert len({page_key(root, [t]) for t in (1, 257, 1 + 2**16, 1 + 2**32)}) == 4


def test_any_text_may_name_a_tenant() -> None:
    assert len({root_key(name) for name in ("", "\0", "é", "\ud800", "root")}) == 5


def test_the_first_page_with_a_key_keeps_it() -> None:
    index = PrefixIndex()
    index.add(b"k", 3)
    index.add(b"k", 4)
    assert index.find(b"k") == 3
    assert index.holds(3)
    assert not index.holds(4)


def test_an_overwritten_page_is_found_no_more() -> None:
    index = PrefixIndex()
    index.add(b"k", 3)
    index.drop(3)
    index.drop(5)
    assert index.find(b"k") is None
    index.add(b"k", 4)
    assert index.find(b"k") == 4
