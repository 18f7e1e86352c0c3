"""Pages: a free list with reference counts, block tables, and sharing by content.

One allocator serves the target and the drafter: they index their own tensors by the same page ids.
A page without owners stays findable by its key until it is handed out again, oldest first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from specserve.kv.prefix import PrefixIndex, page_key


@dataclass(slots=True)
class BlockTable:
    """One sequence's pages in order of position, and the keys of those it has filled.

    `root` starts the chain of keys: it names the tenant. None: this sequence neither looks for shared
    pages nor offers its own.
    """

    root: bytes | None
    pages: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)


class PageAllocator:
    """Hands out, shares and takes back pages. Slots are counted in tokens.

    `successors`: how many tokens past its own end a page's content depends on (a drafter's layers may
    read ahead); the key covers them, and a page is shared only once they are true.
    """

    def __init__(self, num_pages: int, page_size: int, successors: int = 0) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._successors = successors
        self._owners = [0] * num_pages
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_pages))
        self._index = PrefixIndex()

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of pages that have an owner, 0 to 1."""
        return 1.0 - len(self._free) / self.num_pages

    def num_pages_for(self, num_slots: int) -> int:
        return -(-num_slots // self.page_size)

    def match(self, root: bytes | None, tokens: Sequence[int], limit: int) -> tuple[list[int], list[bytes]]:
        """Shared pages that begin `tokens`, covering at most `limit` of them, and their keys."""
        pages: list[int] = []
        keys: list[bytes] = []
        if root is None:
            return pages, keys
        for number in range(self._num_shareable(limit, len(tokens))):
            key = self._key(keys[-1] if keys else root, tokens, number)
            page = self._index.find(key)
            if page is None:
                break
            pages.append(page)
            keys.append(key)
        return pages, keys

    def adopt(self, table: BlockTable, pages: list[int], keys: list[bytes]) -> None:
        """Make matched pages the beginning of an empty table."""
        for page in pages:
            self._owners[page] += 1
            self._free.pop(page, None)
        table.pages[:] = pages
        table.keys[:] = keys

    def num_missing(self, table: BlockTable, num_slots: int) -> int:
        """Pages to add before the table covers `num_slots`; a rejected draft may have left enough."""
        return max(0, self.num_pages_for(num_slots) - len(table.pages))

    def reserve(self, table: BlockTable, num_slots: int) -> bool:
        """Let the table cover `num_slots`. False, and nothing done, when too few pages are free."""
        missing = self.num_missing(table, num_slots)
        if missing > len(self._free):
            return False
        for _ in range(missing):
            page, _ = self._free.popitem(last=False)
            self._index.drop(page)
            self._owners[page] = 1
            table.pages.append(page)
        return True

    def share(self, table: BlockTable, tokens: Sequence[int], num_true: int) -> None:
        """Offer the full pages among the first `num_true` rows, which are true in every layer."""
        if table.root is None:
            return
        for number in range(len(table.keys), self._num_shareable(num_true, len(tokens))):
            key = self._key(table.keys[-1] if table.keys else table.root, tokens, number)
            self._index.add(key, table.pages[number])
            table.keys.append(key)

    def release(self, table: BlockTable) -> None:
        """Give all pages back, the last one first: a sequence's end is the first to be overwritten."""
        for page in reversed(table.pages):
            self._owners[page] -= 1
            if self._owners[page] == 0:
                self._free[page] = None
                # A page nobody can find is reused before any that might be wanted again.
                if not self._index.holds(page):
                    self._free.move_to_end(page, last=False)
        table.pages.clear()
        table.keys.clear()

    def reset_prefix_cache(self) -> None:
        """Forget what pages hold; owners keep theirs."""
        self._index = PrefixIndex()

    def _num_shareable(self, num_true: int, num_known: int) -> int:
        return max(0, min(num_true, num_known - self._successors)) // self.page_size

    def _key(self, parent: bytes, tokens: Sequence[int], number: int) -> bytes:
        start = number * self.page_size
        return page_key(parent, tokens[start : start + self.page_size + self._successors])
