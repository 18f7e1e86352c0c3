"""How a source's guesses fared in one text lately, and what its next ones are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

DECAY = 0.9  # of what a judgement counts, per later one of the same source
WEIGHT = 2.0  # guesses that the first estimate counts for
FIRST = (0.5, 0.45, 0.55, 0.65, 0.75, 0.85)  # the first estimate by match: unknown, 1, 2-3, 4-7, 8-15, more
PRICE = 0.06  # of a guess, in tokens: its row in the target's pass


def kind_of(match: int) -> int:
    """Guesses behind matches of about the same length fare alike; 0: nothing is known of the match."""
    return min(match.bit_length(), len(FIRST) - 1)


def num_right(guesses: Sequence[int], truth: Sequence[int]) -> int:
    """Guesses before the first wrong one, as far as the truth goes."""
    most = min(len(guesses), len(truth))
    return next((i for i in range(most) if guesses[i] != truth[i]), most)


def value(rate: float, num_guesses: int) -> float:
    """Tokens that guesses keep on average, each with chance `rate` < 1 if all before it were, less the price
    of their rows."""
    return rate * (1 - rate**num_guesses) / (1 - rate) - PRICE * num_guesses


@dataclass(slots=True)
class Record:
    """Right and judged guesses by kind of match, the later the more they count."""

    right: list[float] = field(default_factory=lambda: [0.0] * len(FIRST))
    judged: list[float] = field(default_factory=lambda: [0.0] * len(FIRST))

    def judge(self, kind: int, guesses: Sequence[int], truth: Sequence[int]) -> None:
        """The first wrong guess ends what is known of the others."""
        right = num_right(guesses, truth)
        self.fade()
        self.right[kind] += right
        self.judged[kind] += min(right + 1, len(guesses), len(truth))

    def fade(self) -> None:
        """Back towards the first estimates."""
        self.right = [count * DECAY for count in self.right]
        self.judged = [count * DECAY for count in self.judged]

    def rate(self, kind: int) -> float:
        """The chance of a guess all of whose predecessors are right."""
        return (self.right[kind] + WEIGHT * FIRST[kind]) / (self.judged[kind] + WEIGHT)
