"""Where in a predicted text the output stands, so that what follows there is the guess.

The output is followed token by token. While it says what is predicted, it stands behind that; when it says
something else, its ending is looked for (`find` is the definition) and followed from there. How much of an
ending must agree rises with each place that turns out wrong at once, so an output that has nothing to do with
its prediction soon costs nothing; it falls again when a place holds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest

START = 8  # an output that has not begun counts as agreeing so far
HELD = 4  # tokens after which a place is no mistake
LONGEST = 64  # of an ending; a longer one is worth as much
MOST_PLACES = 64  # that an ending is looked for at: the nearest ones


@dataclass(frozen=True, slots=True)
class Place:
    """`position` in the prediction is what should come next; `match` tokens before it agree."""

    position: int
    match: int


def find(predicted: Sequence[int], text: Sequence[int], around: int) -> Place | None:
    """The place behind the longest ending of `text`, among the nearest places behind its last token.

    The nearest one at or after `around` is the first, then the nearest before it, and so in turn; of equally
    long endings the first one's place is taken. None: the last token is nowhere.
    """
    places = [p + 1 for p, token in enumerate(predicted) if token == text[-1]]
    return _longest(predicted, text, _nearest(places, around))


def _nearest(places: Sequence[int], around: int) -> list[int]:
    """Of sorted places."""
    middle = bisect_left(places, around)
    ahead, behind = places[middle : middle + MOST_PLACES], places[max(middle - MOST_PLACES, 0) : middle]
    in_turn = chain.from_iterable(zip_longest(ahead, reversed(behind)))
    return list(islice((place for place in in_turn if place is not None), MOST_PLACES))


def _longest(predicted: Sequence[int], text: Sequence[int], places: Sequence[int]) -> Place | None:
    best = None
    for position in places:
        match = _common_ending(predicted, position, text)
        if best is None or match > best.match:
            best = Place(position, match)
    return best


def _common_ending(predicted: Sequence[int], position: int, text: Sequence[int]) -> int:
    """How many tokens before `position` are the last ones of `text`, at most `LONGEST`."""
    most = min(position, len(text), LONGEST)
    for count in range(most):
        if predicted[position - 1 - count] != text[-1 - count]:
            return count
    return most


@dataclass(slots=True)
class Alignment:
    """One output against its prediction. `num_read` tokens of the text, its prompt first, are followed."""

    predicted: Sequence[int]
    num_read: int
    place: Place | None = field(default_factory=lambda: Place(0, START))  # None: lost
    num_held: int = 0  # tokens that agreed since the place was found
    num_wrong: int = 0  # places that were wrong at once, since one that held
    _around: int = 0  # the last place
    _places: dict[int, list[int]] | None = None  # behind each id, sorted; made when first needed

    def follow(self, tokens: Sequence[int]) -> None:
        """`tokens` is the same text each time, longer or not."""
        for end in range(self.num_read + 1, len(tokens) + 1):
            self._take(tokens, end)
        self.num_read = max(self.num_read, len(tokens))

    def guess(self, num_tokens: int) -> list[int]:
        """What is predicted next, twice as much as agrees: a short ending may stand in many places."""
        if self.place is None:
            return []
        start, num = self.place.position, min(num_tokens, 2 * self.place.match)
        return list(self.predicted[start : start + num])

    def _take(self, tokens: Sequence[int], end: int) -> None:
        """The token before `end` is the next one."""
        place = self.place
        if place is not None and place.position < len(self.predicted):
            if self.predicted[place.position] == tokens[end - 1]:
                self.place = Place(place.position + 1, min(place.match + 1, LONGEST))
                self.num_held += 1
                if self.num_held >= HELD:
                    self.num_wrong = 0
                return
            self.num_wrong += self.num_held == 0
        self._around = self._around if place is None else place.position
        found = _longest(self.predicted, _ending(tokens, end), self._near(tokens[end - 1]))
        self.place = found if found is not None and found.match > self.num_wrong else None
        self.num_held = 0

    def _near(self, token: int) -> list[int]:
        if self._places is None:
            self._places = {}
            for position, predicted in enumerate(self.predicted, 1):
                self._places.setdefault(predicted, []).append(position)
        return _nearest(self._places.get(token, []), self._around)


def _ending(tokens: Sequence[int], end: int) -> Sequence[int]:
    return tokens[max(end - LONGEST, 0) : end]
