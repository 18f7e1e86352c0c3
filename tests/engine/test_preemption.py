"""Running out of pages: who loses them, what is given back, and what comes of it."""

from __future__ import annotations

from specserve.types import Needs
from tests.support.desk import Desk, rows


def full_desk(**config: object) -> Desk:
    """Two sequences of two full pages each, and no page free; each needs another one in the next step."""
    desk = Desk(**{"num_pages": 4, "max_model_len": 16, **config})  # type: ignore[arg-type]
    desk.add("a", 7)
    desk.add("b", 7)
    desk.step()
    desk.step()
    assert desk.pages.num_free == 0
    return desk


def names(seqs: list[object]) -> list[str]:
    return [seq.request.request_id for seq in seqs]  # type: ignore[attr-defined]


def test_the_last_in_line_loses_its_pages_and_waits_in_front() -> None:
    desk = full_desk()
    desk.add("c", 2)
    b = desk.scheduler.running[1]
    plan = desk.step()
    assert (rows(plan), plan.num_preemptions) == ({"a": 1}, 1)
    assert names(desk.scheduler.waiting) == ["b", "c"]
    assert (b.computed, b.table.pages, b.num_preemptions, len(b.output)) == (0, [], 1, 2)


def test_nobody_is_admitted_in_a_step_with_a_preemption() -> None:
    desk = full_desk(policy="priority")
    desk.add("c", 2, priority=-1)
    assert rows(desk.step()) == {"a": 1}, "c is first in line and would fit into the page that is left"
    assert desk.pages.num_free == 1
    assert rows(desk.step()) == {"a": 1, "c": 2}


def test_recomputation_runs_over_prompt_and_output_and_goes_on() -> None:
    desk = full_desk(enable_prefix_caching=False)
    a, b = desk.scheduler.running
    tokens = list(b.tokens)
    desk.step()
    desk.scheduler.remove(a)
    assert rows(desk.step(b=[5])) == {"b": 9}
    assert b.tokens == [*tokens, 5]
    assert b.num_cached_tokens == 0


def test_a_preempted_sequence_hits_its_own_pages_again() -> None:
    desk = full_desk()
    a, b = desk.scheduler.running
    desk.step()
    desk.scheduler.remove(a)
    plan = desk.step()
    assert rows(plan) == {"b": 5}, "of its two full pages the second was overwritten"
    assert b.computed == 9
    assert b.num_cached_tokens == 0, "cached tokens are those of the first admission"


def test_nobody_loses_pages_for_a_guess() -> None:
    desk = Desk(num_pages=4, max_model_len=16)
    a, b = desk.add("a", 6), desk.add("b", 7)
    desk.step()
    a.draft, b.draft = [1, 2, 3, 4], [5]
    plan = desk.step(a=[1, 9])
    assert (rows(plan), plan.num_trimmed_draft_tokens) == ({"a": 2, "b": 1}, 4)
    assert plan.num_preemptions == 0


def test_lookahead_slots_count_as_the_guesss_cost_unless_the_context_ends_there() -> None:
    for context, expected in ((16, 2), (12, 4)):
        desk = Desk(Needs(lookahead=3), num_pages=3, max_model_len=context)
        a = desk.add("a", 6)
        desk.step()
        a.draft = [1, 2, 3, 4]
        plan = desk.step()
        assert (rows(plan)["a"], plan.num_preemptions) == (1 + expected, 0)


def test_a_victims_drafts_are_counted_as_trimmed() -> None:
    desk = full_desk()
    a, b = desk.scheduler.running
    b.draft = [2, 3]
    plan = desk.step()
    assert rows(plan) == {"a": 1}
    assert (a.draft, b.draft, plan.num_trimmed_draft_tokens) == ([], [], 2)


def test_the_one_in_need_may_be_the_victim_itself() -> None:
    desk = Desk(num_pages=4, max_model_len=16)
    desk.add("a", 6)
    desk.add("b", 7)
    desk.step()
    desk.step()
    b = desk.scheduler.running[1]
    b.draft = [1, 2]
    plan = desk.step()
    assert (rows(plan), plan.num_preemptions, plan.num_trimmed_draft_tokens) == ({"a": 1}, 1, 2)
    assert b.draft == []


def test_the_highest_number_is_the_victim_even_before_others_in_line() -> None:
    desk = Desk(policy="priority", num_pages=4, max_model_len=16)
    desk.add("low", 7, priority=5)
    desk.step()
    desk.add("high", 7, priority=1)
    desk.step()
    plan = desk.step()
    assert (rows(plan), plan.num_preemptions) == ({"high": 1}, 1)
    assert names(desk.scheduler.waiting) == ["low"]


def test_a_victim_planned_already_gives_back_rows_and_pages() -> None:
    desk = Desk(policy="priority", num_pages=5, max_model_len=16, max_num_batched_tokens=8)
    low = desk.add("low", 4, priority=5)
    desk.step()
    desk.add("high", 7, priority=1)
    middle = desk.add("middle", 1, priority=2)
    assert rows(desk.step()) == {"low": 1, "high": 7}
    assert rows(desk.step()) == {"low": 1, "high": 1, "middle": 1}
    assert desk.pages.num_free == 0
    low.draft, middle.draft = [1], [1, 2, 3, 4, 5, 6, 7]
    plan = desk.step()
    assert rows(plan) == {"high": 1, "middle": 7}, "low's two rows and one of its pages went to middle"
    assert (plan.num_preemptions, plan.num_trimmed_draft_tokens) == (1, 2), "one guess of either"
    assert [item.row for item in plan.items] == [0, 1]
    assert (low.computed, low.draft, low.table.pages) == (0, [], [])


def test_equal_priorities_fall_back_to_arrival() -> None:
    desk = Desk(policy="priority", num_pages=4, max_model_len=16)
    desk.add("late", 7, arrival=2.0)
    desk.step()
    desk.add("early", 7, arrival=1.0)
    desk.step()
    desk.step()
    assert names(desk.scheduler.waiting) == ["late"]


def test_removal_frees_pages_at_once_wherever_the_sequence_is() -> None:
    desk = full_desk()
    c = desk.add("c", 2)
    a, b = desk.scheduler.running
    for seq in (c, b, a):
        desk.scheduler.remove(seq)
    assert desk.pages.num_free == 4
    assert desk.scheduler.running == desk.scheduler.waiting == []
