"""Prompt lookup: the tokens that followed the last occurrence of the current ending are the guess.

Saxena, "Prompt Lookup Decoding" (2023). No weights, no cache, no state but an index of positions.
Longest ending first (`prompt_lookup_max` down to `prompt_lookup_min` tokens), then the most recent
occurrence, or the earliest with `prompt_lookup_match="earliest"`. `find` is the definition; the
drafter keeps an index per sequence (`specserve.ops.search`), so a guess costs the same at any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specserve.draft.base import SYNCED_ALWAYS
from specserve.draft.config_target import TargetInfo
from specserve.ops.native import find_library
from specserve.ops.search import Endings, Index, make_index
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


class NgramDrafter:
    """Guesses from the sequence's own history; reads it from the ask, so commits tell it nothing new."""

    needs = Needs()

    def __init__(self, options: Options) -> None:
        self._endings = Endings(
            options.prompt_lookup_min, options.prompt_lookup_max, options.prompt_lookup_match == "earliest"
        )
        self._library = find_library()
        self._indexes: dict[int, Index] = {}

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
            index = self._indexes[ask.seq_id] = make_index(self._endings, self._library)
        position = index.follow(ask.tokens)
        return [] if position is None else list(ask.tokens[position : position + ask.num_tokens])
