"""Content keys of pages and the index from key to page.

A key chains over (parent key, the page's tokens, the successors' tokens); the first parent is the root
that names the tenant, so equal text of different tenants never meets.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import sha256


def root_key(tenant: str) -> bytes:
    return sha256(b"root\0" + tenant.encode("utf-8", "surrogatepass")).digest()


def page_key(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Key of a page. A cryptographic hash: keys are compared instead of tokens, across tenants."""
    return sha256(parent + array("q", tokens).tobytes()).digest()


class PrefixIndex:
    """Which page holds which content. The first page with a key keeps it."""

    def __init__(self) -> None:
        self._page_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    def find(self, key: bytes) -> int | None:
        return self._page_of.get(key)

    def holds(self, page: int) -> bool:
        return page in self._key_of

    def add(self, key: bytes, page: int) -> None:
        if key not in self._page_of:
            self._page_of[key] = page
            self._key_of[page] = key

    def drop(self, page: int) -> None:
        """The page is about to be overwritten."""
        key = self._key_of.pop(page, None)
        if key is not None:
            del self._page_of[key]
