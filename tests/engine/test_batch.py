"""A plan as tensors: ids, positions, slots, and whose logits are wanted."""

from __future__ import annotations

import torch

from specserve.engine.batch import build_batch, logits_rows
from specserve.engine.plan import Plan
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
    rows = build_batch(plan, 4, 32, torch.device("cpu"))
    a, b = desk.scheduler.running
    assert rows.ids.tolist() == [5, 6, 0, 1, 2, 3, 4, 5, 6], "a guess outside the vocabulary is some row"
    assert rows.positions.tolist() == [3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert (rows.starts, rows.contexts, rows.page_size) == ([0, 3, 9], [6, 6], 4)
    assert rows.block_tables == [a.table.pages, b.table.pages]
    assert rows.ids.dtype == rows.slots.dtype == torch.int64


def test_slots_follow_the_block_table() -> None:
    _, plan = two_planned()
    rows = build_batch(plan, 4, 32, torch.device("cpu"))
    expected = []
    for item in plan.items:
        pages = item.seq.table.pages
        expected += [pages[p // 4] * 4 + p % 4 for p in range(item.start, item.start + item.num_rows)]
    assert rows.slots.tolist() == expected
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
