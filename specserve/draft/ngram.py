"""Prompt lookup: the tokens that followed the last occurrence of the current ending are the guess.

Saxena, "Prompt Lookup Decoding" (2023). No weights, no cache, no state but an index of positions.
Longest ending first (`prompt_lookup_max` down to `prompt_lookup_min` tokens), then the most recent
occurrence, or the earliest with `prompt_lookup_match="earliest"`. `find` is the definition; the
drafter keeps a hash index per sequence, so a guess costs the same at any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specserve.draft.base import SYNCED_ALWAYS
from specserve.draft.config_target import TargetInfo
from specserve.types import Ask, AskBatch, CommitBatch, Draft, Needs

Match = Literal["recent", "earliest"]


@dataclass(frozen=True, slots=True)
class Options:
    """Bounds of the ending's length in tokens, 1 ≤ min ≤ max, and the tie rule."""

    prompt_lookup_min: int = 5
    prompt_lookup_max: int = 5
    prompt_lookup_match: Match = "recent"


def build(options: Options, _target: TargetInfo) -> NgramDrafter:
    """The target does not matter: every text is drafted alike."""
    return NgramDrafter(options)


def find(tokens: Sequence[int], options: Options, num_tokens: int) -> list[int]:
    """The guess by definition, O(length²): at most `num_tokens` tokens after the chosen occurrence.

    An occurrence may overlap the ending itself; it must only have a token after it.
    """
    length = len(tokens)
    for size in range(options.prompt_lookup_max, options.prompt_lookup_min - 1, -1):
        ending = list(tokens[length - size :])
        starts = [s for s in range(length - size) if list(tokens[s : s + size]) == ending]
        if starts and size < length:
            follow = (starts[-1] if options.prompt_lookup_match == "recent" else starts[0]) + size
            return list(tokens[follow : follow + num_tokens])
    return []


class _Index:
    """For each ending length, from the tokens to the position that follows them."""

    __slots__ = ("_follow", "_length", "_options")

    def __init__(self, options: Options) -> None:
        self._options = options
        self._follow: dict[tuple[int, ...], int] = {}
        self._length = 0  # tokens[:length] are indexed as endings

    def guess(self, tokens: Sequence[int], num_tokens: int) -> list[int]:
        self._extend(tokens)
        length = len(tokens)
        for size in range(
            min(self._options.prompt_lookup_max, length), self._options.prompt_lookup_min - 1, -1
        ):
            follow = self._follow.get(tuple(tokens[length - size :]))
            if follow is not None:
                return list(tokens[follow : follow + num_tokens])
        return []

    def _extend(self, tokens: Sequence[int]) -> None:
        """Index every ending that has a token after it; start over when the history got shorter."""
        if len(tokens) - 1 < self._length:
            self._follow.clear()
            self._length = 0
        low, high = self._options.prompt_lookup_min, self._options.prompt_lookup_max
        earliest = self._options.prompt_lookup_match == "earliest"
        for end in range(self._length + 1, len(tokens)):
            for size in range(low, min(high, end) + 1):
                ending = tuple(tokens[end - size : end])
                if earliest:
                    self._follow.setdefault(ending, end)
                else:
                    self._follow[ending] = end
        self._length = max(self._length, len(tokens) - 1)


class NgramDrafter:
    """Guesses from the sequence's own history; reads it from the ask, so commits tell it nothing new."""

    needs = Needs()

    def __init__(self, options: Options) -> None:
        self._options = options
        self._indexes: dict[int, _Index] = {}

    def observe(self, commits: CommitBatch) -> None:
        return

    def propose(self, asks: AskBatch) -> Draft:
        return Draft([self._guess(ask) for ask in asks.asks])

    def synced(self, seq_id: int) -> int:
        return SYNCED_ALWAYS

    def forget(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self._indexes.pop(seq_id, None)

    def _guess(self, ask: Ask) -> list[int]:
        index = self._indexes.get(ask.seq_id)
        if index is None:
            index = self._indexes[ask.seq_id] = _Index(self._options)
        return index.guess(ask.tokens, ask.num_tokens)
