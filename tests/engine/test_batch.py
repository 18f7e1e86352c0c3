"""A plan as numbers: ids, positions, slots, and whose logits are wanted."""

from __future__ import annotations

from array import array
from dataclasses import fields, replace

import torch

from specserve.engine.batch import build_batch, logits_rows
from specserve.engine.plan import Plan
from specserve.models.batch import to_rows
from specserve.types import Batch, Rows
from tests.support.desk import Desk


def two_planned() -> tuple[Desk, Plan]:
    """A verification of two guesses (one of them no token) and a prompt chunk."""
    desk = Desk(max_num_batched_tokens=9)
    a = desk.add("a", [7, 8, 9])
    desk.step(a=[5])
    desk.add("b", [1, 2, 3, 4, 5, 6, 7])
    a.draft = [6, 99]
    return desk, desk.scheduler.plan()


def test_a_batch_lays_known_tokens_then_guesses_side_by_side() -> None:
    desk, plan = two_planned()
    batch = build_batch(plan, 4, 32)
    a, b = desk.scheduler.running
    assert batch.ids.tolist() == [5, 6, 0, 1, 2, 3, 4, 5, 6], "a guess outside the vocabulary is some row"
    assert batch.positions.tolist() == [3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert (batch.starts, batch.contexts, batch.page_size) == ([0, 3, 9], [6, 6], 4)
    assert batch.block_tables == [a.table.pages, b.table.pages]
    assert {array.typecode for array in (batch.ids, batch.positions, batch.slots)} == {"q"}


def test_rows_are_the_same_numbers_as_tensors() -> None:
    batch = replace(build_batch(two_planned()[1], 4, 32), key_limits=array("i", range(9)))
    rows = to_rows(batch, torch.device("cpu"))
    for field in fields(Rows):
        numbers, given = getattr(rows, field.name), getattr(batch, field.name)
        if isinstance(numbers, torch.Tensor):
            assert (numbers.tolist(), numbers.dtype) == (given.tolist(), torch.int64)
        else:
            assert numbers is given
    assert [field.name for field in fields(Rows)] == [field.name for field in fields(Batch)]
    assert to_rows(replace(batch, key_limits=None), torch.device("cpu")).key_limits is None


def test_slots_follow_the_block_table() -> None:
    _, plan = two_planned()
    batch = build_batch(plan, 4, 32)
    expected = []
    for item in plan.items:
        pages = item.seq.table.pages
        expected += [pages[p // 4] * 4 + p % 4 for p in range(item.start, item.start + item.num_rows)]
    assert batch.slots.tolist() == expected
    assert len(set(expected)) == 9


def test_logits_are_wanted_of_the_last_known_token_and_of_guesses() -> None:
    _, plan = two_planned()
    assert logits_rows(plan) == [0, 1, 2], "the chunk samples nothing"
    desk = Desk()
    desk.add("a", 5)
    desk.add("b", 2)
    assert logits_rows(desk.scheduler.plan()) == [4, 6]


def test_the_plan_names_drafts_temperatures_and_draws_of_whoever_samples() -> None:
    desk, plan = two_planned()
    (a, _) = desk.scheduler.running
    assert plan.draft.tokens == [[6, 99]]
    assert plan.sampling.temperatures == [0.0]
    assert (plan.rng.seeds, plan.rng.indices) == ([a.seed], [4])
    assert plan.num_rows == 9
