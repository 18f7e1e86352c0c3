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
LONGEST_MATCH = 16  # that is told from longer ones


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


def match_length(tokens: Sequence[int], position: int) -> int:
    """How many tokens before `position` are the text's last ones, whatever was looked for."""
    last = len(tokens) - 1
    most = min(position, LONGEST_MATCH)
    return next((n for n in range(most) if tokens[position - 1 - n] != tokens[last - n]), most)


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
        places = [self._follow(ask) for ask in asks.asks]
        pairs = list(zip(asks.asks, places, strict=True))
        return Draft(
            [[] if p is None else list(a.tokens[p : p + a.num_tokens]) for a, p in pairs],
            matches=[0 if p is None else match_length(a.tokens, p) for a, p in pairs],
        )

    def synced(self, seq_id: int) -> int:
        return SYNCED_ALWAYS

    def forget(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self._indexes.pop(seq_id, None)

    def _follow(self, ask: Ask) -> int | None:
        """Where the guesses start."""
        index = self._indexes.get(ask.seq_id)
        if index is None:
            index = self._indexes[ask.seq_id] = make_index(self._endings, self._library)
        return index.follow(ask.tokens)
