"""Outputs against their predictions: where they are followed, lost and found again."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from specserve.draft.alignment import LONGEST, MOST_PLACES, START, Alignment, Place, find

PROMPT = [90, 91]


def follow(predicted: Sequence[int], output: Sequence[int]) -> Alignment:
    alignment = Alignment(predicted, len(PROMPT))
    alignment.follow([*PROMPT, *output])
    return alignment


def guess(predicted: Sequence[int], output: Sequence[int], num_tokens: int = 4) -> list[int]:
    return follow(predicted, output).guess(num_tokens)


class Slow:
    """The same by the definition: for each token of the output, from the start, with `find`."""

    def __init__(self, predicted: Sequence[int], output: Sequence[int]) -> None:
        self.place: Place | None = Place(0, START)
        held = wrong = around = 0
        for end in range(1, len(output) + 1):
            place, token = self.place, output[end - 1]
            if place is not None and list(predicted[place.position : place.position + 1]) == [token]:
                self.place = Place(place.position + 1, min(place.match + 1, LONGEST))
                held += 1
                wrong = 0 if held >= 4 else wrong
                continue
            if place is not None:
                around = place.position
                wrong += held == 0 and place.position < len(predicted)
            found = find(predicted, [*PROMPT, *output[:end]], around)
            self.place = found if found is not None and found.match > wrong else None
            held = 0


# --- where an ending stands ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("predicted", "text", "around", "place"),
    [
        ([1, 2, 3], [2], 0, Place(2, 1)),
        ([1, 2, 3], [9, 2], 0, Place(2, 1)),
        ([1, 2, 3, 4, 2, 3], [4, 2], 0, Place(5, 2)),  # the longest, not the nearest
        ([1, 2, 5, 2, 6, 2], [9, 2], 3, Place(4, 1)),  # the nearest at or after
        ([1, 2, 5, 2, 6, 2], [9, 2], 4, Place(4, 1)),
        ([1, 2, 5, 2, 6], [9, 2], 5, Place(4, 1)),  # none after: the nearest before
        ([7, 7, 7], [7, 7, 7, 7], 0, Place(3, 3)),
        ([1, 2], [3], 0, None),
        ([], [3], 0, None),
    ],
)
def test_an_ending_is_found(predicted: list[int], text: list[int], around: int, place: Place | None) -> None:
    assert find(predicted, text, around) == place


def test_no_more_places_are_looked_at_than_the_nearest() -> None:
    far = [5, 1] + [2, 1] * MOST_PLACES  # the ending 5, 1 stands at the start only
    assert find(far, [5, 1], 0) == Place(2, 2)
    assert find(far, [5, 1], len(far)) == Place(len(far), 1)


def test_an_ending_is_no_longer_than_worth_knowing() -> None:
    text = list(range(2 * LONGEST))
    assert find(text, text, 0) == Place(2 * LONGEST, LONGEST)


# --- following ----------------------------------------------------------------------------------


def test_an_output_begins_where_its_prediction_does() -> None:
    assert guess([1, 2, 3, 4, 5], []) == [1, 2, 3, 4]
    assert guess([1, 2, 3, 4, 5], [1]) == [2, 3, 4, 5]
    assert guess([1, 2, 3, 4, 5], [1, 2, 3]) == [4, 5]
    assert guess([1, 2, 3], [1, 2, 3]) == []


def test_what_departs_is_lost_until_it_is_back() -> None:
    predicted = [1, 2, 3, 4, 5, 6, 7, 8]
    assert guess(predicted, [1, 2, 9]) == []
    assert guess(predicted, [1, 2, 9, 10, 4]) == [5, 6]
    assert guess(predicted, [1, 2, 9, 10, 4, 5]) == [6, 7, 8]


def test_a_short_match_guesses_little() -> None:
    predicted = list(range(40))
    assert len(guess(predicted, [0, 99, 20], 16)) == 2
    assert len(guess(predicted, [0, 99, 20, 21], 16)) == 4
    assert len(guess(predicted, [0, 99, 20, 21, 22, 23], 16)) == 8
    assert len(guess(predicted, [], 64)) == 2 * START


def test_places_that_are_wrong_at_once_ask_for_longer_matches() -> None:
    predicted = [1, 10, 2, 11, 3, 12, 4, 13, 14, 15, 16, 17]
    assert guess(predicted, [1, 10, 99, 2]) == [11, 3]
    assert guess(predicted, [1, 10, 99, 2, 99, 3]) == []  # one token is not enough any more
    assert guess(predicted, [1, 10, 99, 2, 99, 3, 12]) == [4, 13, 14, 15]
    assert guess(predicted, [1, 10, 99, 2, 99, 3, 12, 99, 4, 13]) == []
    assert guess(predicted, [1, 10, 99, 2, 99, 3, 12, 99, 4, 13, 14]) == [15, 16, 17]


def test_a_place_that_holds_makes_up_for_the_wrong_ones() -> None:
    predicted = list(range(30))
    alignment = follow(predicted, [99, 5, 98, 10, 97])
    assert alignment.num_wrong > 0
    alignment.follow([*PROMPT, 99, 5, 98, 10, 97, *range(15, 25)])
    assert alignment.num_wrong == 0


def test_the_prompt_may_be_part_of_a_match() -> None:
    alignment = Alignment([1, 2, 3, 90, 91, 7, 8, 91, 5, 6], 2)
    alignment.follow([90, 91, 5])
    assert alignment.place == Place(9, 2)


@pytest.mark.parametrize("seed", range(200))
def test_following_piece_by_piece_is_the_definition(seed: int) -> None:
    random = Random(seed)
    size = random.choice([2, 3, 8, 30])
    predicted = [random.randrange(size) for _ in range(random.choice([0, 3, 40, 400]))]
    output = list(predicted)
    for _ in range(random.randint(0, 8)):
        at = random.randint(0, len(output))
        new = [random.randrange(size) for _ in range(random.randint(0, 5))]
        output[at : at + random.randint(0, 6)] = new
    alignment, done = Alignment(predicted, len(PROMPT)), 0
    while done < len(output):
        done += random.randint(1, 9)
        alignment.follow([*PROMPT, *output[:done]])
        assert alignment.place == Slow(predicted, output[:done]).place
    alignment.follow([*PROMPT, *output])  # the same again changes nothing
    assert alignment.place == Slow(predicted, output).place
