"""What followed a text's ending before, and how often: counts of all substrings of up to `depth` tokens.

Oliaro et al., "SuffixDecoding" (2024). `PythonTree` is the definition, the native tree (csrc/suffix.h) gives
the same counts, scores and tokens. A tree holds texts in order of their start and drops the oldest first.

The count of a string is the number of places where it occurs in the tree's texts, also where nothing follows.
Of several equally frequent continuations the one whose last occurrence is in the youngest text, and there the
furthest on, is taken: a function of what the tree holds, not of how it came there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import numpy as np

NO_TEXT = 2**64 - 1
MAX_DEPTH = 2**16 - 1
_ENTRY_BYTES = 200  # of the twin, about


class Limits(NamedTuple):
    """At most `max_tokens` guesses, and `factor` per token of the match; the estimated probability that all
    guesses up to one are right is at least `min_probability`."""

    max_tokens: int
    factor: float = 1.0
    min_probability: float = 0.1


class Guess(NamedTuple):
    """`score` is the expected number of right tokens, by the counts; `match` the length of the ending
    that was found; `work` the nodes that were visited for it, in units of the implementation."""

    tokens: list[int]
    score: float
    match: int
    work: int


class Tree(Protocol):
    """Texts are named by serial numbers; one that was dropped may still be named, and is not missed."""

    @property
    def num_texts(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    def start(self) -> int: ...
    def append(self, text: int, tokens: Sequence[int]) -> bool:
        """False when the text is no longer there."""
        ...

    def finish(self, text: int) -> None: ...
    def evict(self) -> None:
        """Drop the oldest text; there must be one."""
        ...

    def contents(self) -> Iterator[list[int]]:
        """The texts, oldest first. Nothing may change meanwhile."""
        ...

    def count(self, tokens: Sequence[int]) -> int: ...
    def speculate(self, text: int, context: Sequence[int], limits: Limits) -> Guess:
        """What most likely follows the last tokens of `context`, fewer of them than it has.

        `text`: the text the context ends with, as far as it goes back, or `NO_TEXT`.
        """
        ...


class Forest(Protocol):
    """Trees of one depth. What one of them gives back another may take."""

    @property
    def num_bytes(self) -> int:
        """What the trees hold; an allocation is a little more, and never shrinks."""
        ...

    def plant(self) -> Tree: ...


def make_forest(depth: int, library: ModuleType | None) -> Forest:
    return PythonForest(depth) if library is None else NativeForest(depth, library)


class NativeForest:
    def __init__(self, depth: int, library: ModuleType) -> None:
        self._depth = min(depth, MAX_DEPTH)
        self._library = library
        self._memory: Any = library.SuffixMemory()

    @property
    def num_bytes(self) -> int:
        return int(self._memory.num_bytes)

    def plant(self) -> NativeTree:
        return NativeTree(self._depth, self._library.SuffixTree(self._depth, self._memory))


class NativeTree:
    __slots__ = ("_depth", "_native")

    def __init__(self, depth: int, native: Any) -> None:
        self._depth = depth
        self._native = native

    @property
    def num_texts(self) -> int:
        return int(self._native.num_texts)

    @property
    def num_tokens(self) -> int:
        return int(self._native.num_tokens)

    def start(self) -> int:
        return int(self._native.start())

    def append(self, text: int, tokens: Sequence[int]) -> bool:
        return bool(self._native.append(text, tokens))

    def finish(self, text: int) -> None:
        self._native.finish(text)

    def evict(self) -> None:
        self._native.evict()

    def contents(self) -> Iterator[list[int]]:
        first: int = self._native.first
        return (self._native.text(serial) for serial in range(first, first + self.num_texts))

    def count(self, tokens: Sequence[int]) -> int:
        return int(self._native.count(tokens))

    def speculate(self, text: int, context: Sequence[int], limits: Limits) -> Guess:
        last = context[-self._depth :]
        return Guess._make(self._native.speculate(text, last, *limits))


Seen = tuple[int, tuple[int, int]]  # how often, and the last time: text, index


class PythonForest:
    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._trees: WeakSet[PythonTree] = WeakSet()

    @property
    def num_bytes(self) -> int:
        return sum(tree.num_entries for tree in self._trees) * _ENTRY_BYTES

    def plant(self) -> PythonTree:
        tree = PythonTree(self._depth)
        self._trees.add(tree)
        return tree


class PythonTree:
    """For each string shorter than `depth`, the tokens that follow it, how often, and when last."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._next: dict[tuple[int, ...], dict[int, Seen]] = {}
        self._texts: dict[int, list[int]] = {}
        self._num_started = 0
        self.num_entries = 0

    @property
    def num_texts(self) -> int:
        return len(self._texts)

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self._texts.values()))

    def start(self) -> int:
        self._texts[self._num_started] = []
        self._num_started += 1
        return self._num_started - 1

    def append(self, text: int, tokens: Sequence[int]) -> bool:
        held = self._texts.get(text)
        for token in tokens if held is not None else ():
            assert held is not None
            for start in range(max(0, len(held) - self._depth + 1), len(held) + 1):
                followers = self._next.setdefault(tuple(held[start:]), {})
                count, last = followers.get(token, (0, (-1, -1)))
                followers[token] = count + 1, max(last, (text, start))
                self.num_entries += count == 0
            held.append(token)
        return held is not None

    def finish(self, text: int) -> None:
        return

    def evict(self) -> None:
        oldest = next(iter(self._texts))
        tokens = self._texts.pop(oldest)
        for start in range(len(tokens)):
            for end in range(start, min(start + self._depth, len(tokens))):
                self._remove(tuple(tokens[start:end]), tokens[end])

    def contents(self) -> Iterator[list[int]]:
        return map(list, self._texts.values())

    def count(self, tokens: Sequence[int]) -> int:
        if not tokens:
            return 0
        return self._next.get(tuple(tokens[:-1]), {}).get(tokens[-1], (0,))[0]

    def speculate(self, text: int, context: Sequence[int], limits: Limits) -> Guess:
        context = context[-self._depth :]
        best, work = Guess([], 0.0, 0, 0), 0
        for match in range(1, len(context)):
            ending = tuple(context[-match:])
            work += 1
            if not self.count(ending):
                break
            budget = min(limits.max_tokens, int(match * limits.factor + 1e-6))
            tokens, score = self._follow(ending, budget, limits.min_probability)
            work += len(tokens)
            if score >= best.score:
                best = Guess(tokens, score, match, 0)
        return best._replace(work=work)

    def _follow(
        self, string: tuple[int, ...], budget: int, min_probability: float
    ) -> tuple[list[int], float]:
        """The most frequent continuation, token by token. Arithmetic in float32, as there."""
        tokens: list[int] = []
        probability, score = np.float32(1.0), np.float32(0.0)
        while len(tokens) < budget and (followers := self._next.get(string)):
            token, (count, _) = max(followers.items(), key=lambda item: item[1])
            probability *= np.float32(count) / np.float32(self.count(string))
            if probability < np.float32(min_probability):
                break
            tokens.append(token)
            score += probability
            string = (*string, token)
        return tokens, float(score)

    def _remove(self, string: tuple[int, ...], token: int) -> None:
        followers = self._next[string]
        count, last = followers[token]
        if count > 1:
            followers[token] = count - 1, last
            return
        self.num_entries -= 1
        del followers[token]
        if not followers:
            del self._next[string]
