"""What the record of a source makes of its guesses."""

from __future__ import annotations

import pytest

from specserve.draft.record import FIRST, PRICE, WEIGHT, Record, kind_of, num_right, value


def test_matches_are_of_a_kind_with_others_about_as_long() -> None:
    assert [kind_of(match) for match in (0, 1, 2, 3, 4, 7, 8, 15, 16, 1000)] == [0, 1, 2, 2, 3, 3, 4, 4, 5, 5]


@pytest.mark.parametrize(
    ("guesses", "truth", "num"),
    [([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1], 1), ([5], [1], 0), ([5], [], 0)],
)
def test_guesses_are_right_up_to_the_first_wrong_one(guesses: list[int], truth: list[int], num: int) -> None:
    assert num_right(guesses, truth) == num


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("num", [1, 4, 16])
def test_a_value_is_the_expected_number_of_right_guesses_less_their_price(rate: float, num: int) -> None:
    chances = [rate**i * (1 - rate if i < num else 1) for i in range(num + 1)]
    assert value(rate, num) == pytest.approx(sum(i * p for i, p in enumerate(chances)) - PRICE * num)


def test_a_record_begins_with_the_first_estimates_and_learns() -> None:
    record = Record()
    assert [record.rate(kind) for kind in range(len(FIRST))] == pytest.approx(FIRST)
    record.judge(2, [1, 2, 3, 4], [1, 2, 9])
    assert record.rate(2) == pytest.approx((2 + WEIGHT * FIRST[2]) / (3 + WEIGHT))
    assert record.rate(3) == pytest.approx(FIRST[3])


def test_nothing_is_known_of_guesses_the_text_did_not_reach() -> None:
    record = Record()
    record.judge(0, [1, 2, 3, 4], [1, 2])
    assert (record.right[0], record.judged[0]) == (2, 2)


def test_the_latest_judgements_count_most() -> None:
    wrong_last, right_last = Record(), Record()
    for record, order in ((wrong_last, [1, 0]), (right_last, [0, 1])):
        for is_right in order:
            for _ in range(8):
                record.judge(1, [5], [5 if is_right else 6])
    assert right_last.rate(1) > 0.6 > 0.4 > wrong_last.rate(1)


def test_a_record_that_fades_returns_to_the_first_estimates() -> None:
    record = Record()
    for _ in range(20):
        record.judge(0, [5], [6])
    low = record.rate(0)
    for _ in range(60):
        record.fade()
    assert low < 0.2
    assert record.rate(0) == pytest.approx(FIRST[0], abs=0.01)
