"""Earlier outputs, each tenant's in a tree of its own: what one generated never drafts for another.

What is dropped follows from the number and the lengths of the texts, never from what they say, so nobody can
tell what others wrote by what is left of his own. A tenant's oldest text goes first; when memory is short,
that of the tenant who holds most, so whoever holds less than his share loses nothing to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import heapify, heappop, heappush
from itertools import count

from specserve.ops.suffix import Guess, Limits, Tree

Texts = Iterable[tuple[str, list[int]]]  # (tenant, text), each tenant's from the oldest on
BYTES_PER_TOKEN = 53  # the most a tree takes: a page's share of 5, and a node that branches in two
_TEXT_BYTES, _TENANT_BYTES = 400, 2048
_BYTES_PER_ENDING = 56  # of a text: a node, should it occur elsewhere, and its place in the text's list


def tenant_name(tenant: str) -> str:
    """By which a tenant goes here, and in a file: from a key's digest and a salt nobody shall learn them."""
    return sha256(b"suffix\0" + tenant.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Place:
    """A text that grows in its tenant's tree, until it is dropped there."""

    tree: Tree
    text: int
    tenant: str

    def speculate(self, context: Sequence[int], limits: Limits) -> Guess:
        return self.tree.speculate(self.text, context, limits)


class Stores:
    """At most `max_texts` texts per tenant, and `max_bytes` of all together."""

    def __init__(self, make: Callable[[], Tree], depth: int, max_texts: int, max_bytes: int) -> None:
        self._make = make
        self._max_texts = max_texts
        self._max_bytes = max_bytes
        self._bytes_per_text = _TEXT_BYTES + _BYTES_PER_ENDING * depth
        self._trees: dict[str, Tree] = {}
        self._num_texts = self._num_tokens = 0
        self._num_appended = 0
        self._numbers: dict[str, int] = {}  # of the tenants, as they came
        self._count = count()
        self._by_share: list[tuple[int, int, str]] = []  # a heap
        self._changed: set[str] = set()  # whose share is not in it

    @property
    def num_bytes(self) -> int:
        """What the texts take at most."""
        return self._cost(len(self._trees), self._num_texts, self._num_tokens)

    @property
    def num_tokens(self) -> int:
        return self._num_tokens

    @property
    def num_appended(self) -> int:
        """Tokens that ever came, those that were dropped included."""
        return self._num_appended

    def contents(self) -> Texts:
        return ((tenant, text) for tenant, tree in self._trees.items() for text in tree.contents())

    def start(self, tenant: str) -> Place:
        """A new text. It is the tenant's youngest, so it leaves last."""
        tree = self._trees.get(tenant)
        if tree is None:
            tree = self._trees[tenant] = self._make()
            self._numbers[tenant] = next(self._count)
        self._changed.add(tenant)
        place = Place(tree, tree.start(), tenant)
        self._num_texts += 1
        if tree.num_texts > self._max_texts:
            self._evict(tenant)
        self._keep_to_bytes()
        return place

    def append(self, place: Place, tokens: Sequence[int]) -> None:
        if place.tree.append(place.text, tokens):
            self._num_tokens += len(tokens)
            self._changed.add(place.tenant)
            self._num_appended += len(tokens)
            self._keep_to_bytes()

    def finish(self, place: Place) -> None:
        """It will not grow any more; it is remembered."""
        place.tree.finish(place.text)

    def remember(self, tenant: str, tokens: Sequence[int]) -> Place:
        """A whole text."""
        place = self.start(tenant)
        self.append(place, tokens)
        self.finish(place)
        return place

    def _cost(self, num_tenants: int, num_texts: int, num_tokens: int) -> int:
        return num_tenants * _TENANT_BYTES + num_texts * self._bytes_per_text + num_tokens * BYTES_PER_TOKEN

    def _share(self, tenant: str) -> int:
        tree = self._trees[tenant]
        return self._cost(1, tree.num_texts, tree.num_tokens)

    def _keep_to_bytes(self) -> None:
        while self.num_bytes > self._max_bytes:
            self._evict(self._largest())

    def _largest(self) -> str:
        """Who holds most; of equals the one who came first. The heap has an entry with everybody's share, and
        stale ones: whoever has changed is pushed again."""
        for tenant in self._changed:
            if tenant in self._trees:
                heappush(self._by_share, self._entry(tenant))
        self._changed.clear()
        if len(self._by_share) > 2 * len(self._trees) + 64:
            self._by_share = [self._entry(tenant) for tenant in self._trees]
            heapify(self._by_share)
        while True:
            _, _, tenant = entry = self._by_share[0]
            if tenant in self._trees and entry == self._entry(tenant):
                return tenant
            heappop(self._by_share)

    def _entry(self, tenant: str) -> tuple[int, int, str]:
        return -self._share(tenant), self._numbers[tenant], tenant

    def _evict(self, tenant: str) -> None:
        self._changed.add(tenant)
        tree = self._trees[tenant]
        before = tree.num_tokens
        tree.evict()
        self._num_texts -= 1
        self._num_tokens -= before - tree.num_tokens
        if not tree.num_texts:
            del self._trees[tenant], self._numbers[tenant]
