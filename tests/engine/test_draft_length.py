"""How many guesses are asked for: the table, the batch's rows, and what a sequence has left."""

from __future__ import annotations

import pytest

from specserve.engine.draft_length import DraftLength, Loaded
from specserve.errors import InvalidRequest
from specserve.types import Speculation
from tests.support.desk import Desk
from tests.support.drafters import Scripted, self_draft
from tests.support.engine import greedy, make_engine, request, run
from tests.support.stub import StubModel
from tests.support.witness import Recording

MODEL = StubModel()


def length(table: list[int], **config: object) -> DraftLength:
    return DraftLength(table, Desk(**config).config)  # type: ignore[arg-type]


def test_the_tables_entry_is_that_of_the_running_requests() -> None:
    rule = length([0, 4, 4, 3, 0], max_num_batched_tokens=64)
    assert [rule.base(n) for n in (1, 2, 3, 4)] == [4, 4, 3, 0]


def test_past_the_table_its_last_entry_counts_and_nobody_running_gets_nothing() -> None:
    rule = length([0, 4, 2], max_num_batched_tokens=64)
    assert [rule.base(n) for n in (0, 2, 3, 8)] == [0, 2, 2, 2]


@pytest.mark.parametrize(("running", "expected"), [(1, 9), (2, 4), (3, 2), (5, 1), (6, 0), (10, 0)])
def test_rows_of_one_step_bound_the_guesses(running: int, expected: int) -> None:
    assert length([0] + [9] * 10, max_num_batched_tokens=10, max_num_seqs=10).base(running) == expected


def test_a_sequence_is_asked_for_no_more_than_it_may_still_emit() -> None:
    desk = Desk(max_model_len=12)
    seq = desk.add("a", 4)
    desk.step()
    rule = DraftLength([0, 9], desk.config)
    assert rule.limit(seq, 9, 100) == 12 - 5 - 1
    seq.max_tokens = 4
    assert rule.limit(seq, 9, 100) == 4 - 1 - 1
    seq.max_tokens = 1
    assert rule.limit(seq, 9, 100) == 0
    assert rule.limit(seq, 0, 100) == 0


def test_a_sequence_is_asked_for_no_more_than_its_request_allows() -> None:
    desk = Desk()
    seqs = [
        desk.add(str(k), 4, greedy(30, speculation=None if k is None else {"num_speculative_tokens": k}))
        for k in (None, 0, 1, 8)
    ]
    desk.step()
    rule = DraftLength([0, 5], desk.config)
    assert [rule.limit(seq, 5, 100) for seq in seqs] == [5, 0, 1, 5]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, 6),
        ({"enabled": True}, 6),
        ({"enabled": False}, 0),
        ({"num_speculative_tokens": 0}, 0),
        ({"num_speculative_tokens": 6, "method": "ngram"}, 6),
        ({"enabled": True, "num_speculative_tokens": 2}, 2),
        ({"enabled": False, "num_speculative_tokens": 99, "method": "none such"}, 0),
    ],
)
def test_a_request_may_ask_for_less_than_is_loaded(asked: dict[str, object], expected: int) -> None:
    assert Loaded(("ngram",), 6).num_for(Speculation.of(asked)) == expected


@pytest.mark.parametrize(
    ("loaded", "asked", "key", "words"),
    [
        (Loaded(), {"enabled": True}, "enabled", "needs a drafter and none is loaded"),
        (Loaded(), {"num_speculative_tokens": 1}, "num_speculative_tokens", "=1 must be 0: no drafter"),
        (Loaded(), {"method": "ngram"}, "method", "'ngram' is not loaded; loaded at start: none"),
        (
            Loaded(("ngram",), 4),
            {"num_speculative_tokens": 5},
            "num_speculative_tokens",
            "=5 must be at most 4",
        ),
        (Loaded(("a", "b"), 4), {"method": "c"}, "method", "'c' is not loaded; loaded at start: a, b"),
    ],
)
def test_more_than_is_loaded_is_refused_by_name(
    loaded: Loaded, asked: dict[str, object], key: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        loaded.num_for(Speculation.of(asked))
    assert caught.value.param == f"speculation.{key}"


def test_nothing_loaded_and_nothing_asked_is_plain_decoding() -> None:
    for asked in ({}, {"enabled": False}, {"num_speculative_tokens": 0}):
        assert Loaded().num_for(Speculation.of(asked)) == 0


def test_free_pages_bound_the_guesses() -> None:
    desk = Desk()
    seq = desk.add("a", 6)
    desk.step()
    rule = DraftLength([0, 9], desk.config)
    assert [rule.limit(seq, 8, free) for free in (0, 4, 8, 12)] == [1, 5, 8, 8]


def asked(table: list[int], num_requests: int) -> set[int]:
    drafter = Scripted()
    engine = make_engine(MODEL, drafter, table=table)
    run(engine, [request(str(n), [n], greedy(12, ignore_eos=True)) for n in range(num_requests)])
    return {num for _, num in drafter.asked}


def test_a_fixed_table_sets_the_number_for_all_sequences() -> None:
    table = [0, 5, 5, 2, 0]
    assert max(asked(table, 2)) == 5
    assert max(asked(table, 3)) == 2
    assert asked(table, 4) == set()


def test_with_no_guesses_the_drafter_still_hears_everything() -> None:
    drafter = Recording(self_draft(MODEL), 4, MODEL)
    engine = make_engine(MODEL, drafter, table=[0, 3, 0])
    requests = [
        request(name, [1, 2, ord(name) % 31], greedy(8 + 8 * (name == "b"), ignore_eos=True)) for name in "ab"
    ]
    found = run(engine, requests)
    assert [story.computed for story in drafter.stories.values()] == [3 + 7, 3 + 15]
    assert found["b"].token_ids == MODEL.continuation([1, 2, ord("b") % 31], 16)
    first = next(n for n, step in enumerate(found.steps) if step.drafts)
    assert found.steps[first - 1].num_running == 1, "guesses begin once the table allows them"
    assert found.num_accepted > 0
