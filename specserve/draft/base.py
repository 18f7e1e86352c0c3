"""The contract of a drafter: four verbs and its needs as data.

A drafter never sees a rejected token, owns no memory management, and may always answer with fewer
guesses than asked, or none. `tests/contract/` holds the suite every drafter must pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from specserve.ops.program import Limits
from specserve.types import AskBatch, CommitBatch, Draft, LayerCache, Needs

SYNCED_ALWAYS = 2**62  # for drafters without layers: no page waits for them


class Drafter(Protocol):
    needs: Needs

    def observe(self, commits: CommitBatch) -> None:
        """Take note of what became true: accepted rows only, idempotent by position."""
        ...

    def propose(self, asks: AskBatch) -> Draft:
        """Guess: one list per ask, at most `num_tokens` long, possibly empty."""
        ...

    def synced(self, seq_id: int) -> int:
        """Its own cached rows of this sequence are true up to here; a page is shared only up to there."""
        ...

    def forget(self, seq_ids: list[int]) -> None:
        """These sequences will never be seen again."""
        ...


class Layered(Drafter, Protocol):
    """A drafter with `needs.layers`."""

    def bind(self, cache: Sequence[LayerCache], limits: Limits) -> None:
        """Once, before anything else: the tensors of its layers, and the most rows, positions and slots of a
        page that it will meet."""
        ...


def bind(drafter: Drafter, cache: Sequence[LayerCache], limits: Limits) -> None:
    """Give a drafter its layers' tensors, if it has any."""
    if drafter.needs.layers:
        cast(Layered, drafter).bind(cache, limits)


class NoDraft:
    """Speculation off: no guess, ever. Plain decoding is verification of an empty draft."""

    needs = Needs()

    def observe(self, commits: CommitBatch) -> None:
        return

    def propose(self, asks: AskBatch) -> Draft:
        return Draft([[] for _ in asks.asks])

    def synced(self, seq_id: int) -> int:
        return SYNCED_ALWAYS

    def forget(self, seq_ids: list[int]) -> None:
        return
