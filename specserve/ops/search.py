"""Where a growing text's ending occurred before, at a cost that does not grow with the text.

An index is one text's. `find` in `specserve.draft.ngram` is the definition of what it answers; the native
index and the one in Python give the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Endings:
    """From `low` to `high` tokens (1 ≤ low ≤ high), the longest that occurred before; of several occurrences
    the most recent, or the earliest."""

    low: int
    high: int
    earliest: bool


class Index(Protocol):
    def follow(self, tokens: Sequence[int]) -> int | None:
        """The position behind an earlier occurrence of the ending of `tokens`.

        `tokens` is the same text each time, longer or not; a shorter one is indexed anew.
        """
        ...


def make_index(endings: Endings, library: ModuleType | None) -> Index:
    return PythonIndex(endings) if library is None else NativeIndex(endings, library)


class NativeIndex:
    __slots__ = ("_native",)

    def __init__(self, endings: Endings, library: ModuleType) -> None:
        self._native: Any = library.NgramIndex(endings.low, endings.high, endings.earliest)

    def follow(self, tokens: Sequence[int]) -> int | None:
        if len(tokens) < self._native.size:
            self._native.clear()
        self._native.extend(tokens[self._native.size :])
        position: int = self._native.find()
        return None if position < 0 else position


class PythonIndex:
    """For each ending, from its tokens to the position that follows them."""

    __slots__ = ("_endings", "_follow", "_length")

    def __init__(self, endings: Endings) -> None:
        self._endings = endings
        self._follow: dict[tuple[int, ...], int] = {}
        self._length = 0  # tokens[:length] are indexed as endings

    def follow(self, tokens: Sequence[int]) -> int | None:
        self._extend(tokens)
        length = len(tokens)
        for size in range(min(self._endings.high, length), self._endings.low - 1, -1):
            position = self._follow.get(tuple(tokens[length - size :]))
            if position is not None:
                return position
        return None

    def _extend(self, tokens: Sequence[int]) -> None:
        """Index every ending that has a token after it."""
        if len(tokens) - 1 < self._length:
            self._follow.clear()
            self._length = 0
        for end in range(self._length + 1, len(tokens)):
            for size in range(self._endings.low, min(self._endings.high, end) + 1):
                ending = tuple(tokens[end - size : end])
                if self._endings.earliest:
                    self._follow.setdefault(ending, end)
                else:
                    self._follow[ending] = end
        self._length = max(self._length, len(tokens) - 1)
