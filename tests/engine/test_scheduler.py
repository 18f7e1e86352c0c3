"""Who runs, on how many rows: the golden traces and the rules of one budget without phases."""

from __future__ import annotations

import pytest

from specserve.errors import Overloaded
from specserve.types import Needs, SamplingParams
from tests.support.desk import Desk, drafts, rows


def test_golden_trace_of_prompt_and_two_verifications() -> None:
    desk = Desk()
    seq = desk.add("a", 5)
    assert rows(desk.step(a=[9])) == {"a": 5}
    assert (seq.computed, len(seq.tokens)) == (5, 6)
    seq.draft = [1, 2, 3]
    plan = desk.step(a=[1, 2, 7])
    assert (rows(plan), drafts(plan)) == ({"a": 4}, {"a": [1, 2, 3]})
    assert (seq.computed, len(seq.tokens), seq.draft) == (8, 9, [])
    seq.draft = [4, 5, 6]
    assert rows(desk.step()) == {"a": 4}
    assert seq.computed == len(seq.tokens) - 1


def test_at_the_last_position_one_draft_survives() -> None:
    desk = Desk(max_model_len=8)
    seq = desk.add("a", 5)
    desk.step()
    seq.draft = [1, 2, 3]
    plan = desk.step()
    assert (rows(plan), drafts(plan), plan.num_trimmed_draft_tokens) == ({"a": 2}, {"a": [1]}, 2)
    assert (len(seq.tokens), seq.finish_reason) == (8, "length")


def test_many_sequences_verify_in_one_step() -> None:
    desk = Desk()
    a, b = desk.add("a", 3), desk.add("b", 3)
    desk.step()
    a.draft, b.draft = [1, 2], [3]
    plan = desk.step(a=[1, 2, 5], b=[3, 4])
    assert rows(plan) == {"a": 3, "b": 2}
    assert [(d.drafted, d.accepted) for d in desk.drafts] == [(2, 2), (1, 1)]


def test_rows_are_laid_out_in_order_and_only_ends_sample() -> None:
    desk = Desk(max_num_batched_tokens=10)
    desk.add("a", 4)
    desk.add("b", 9)
    plan = desk.step()
    assert [(item.row, item.num_rows) for item in plan.items] == [(0, 4), (4, 6)]
    assert plan.sampling_items == plan.items[:1]


# --- budgets ----------------------------------------------------------------------------------


def test_drafts_are_trimmed_to_the_budget() -> None:
    desk = Desk(max_num_batched_tokens=6)
    a, b = desk.add("a", 2), desk.add("b", 3)
    desk.step()
    a.draft, b.draft = [1, 2, 3], [4, 5, 6]
    plan = desk.step()
    assert (drafts(plan), plan.num_trimmed_draft_tokens) == ({"a": [1, 2, 3], "b": [4]}, 2)


def test_drafts_of_a_sequence_without_budget_are_dropped() -> None:
    desk = Desk(max_num_batched_tokens=4)
    a, b = desk.add("a", 2), desk.add("b", 2)
    desk.step()
    a.draft, b.draft = [1, 2, 3], [4]
    plan = desk.step()
    assert (rows(plan), b.draft, plan.num_trimmed_draft_tokens) == ({"a": 4}, [], 1)
    assert rows(desk.step()) == {"a": 1, "b": 1}


def test_a_chunk_never_carries_drafts() -> None:
    desk = Desk(max_num_batched_tokens=4)
    seq = desk.add("a", 9)
    for expected in (4, 4, 1):
        plan = desk.step()
        assert (rows(plan), drafts(plan)) == ({"a": expected}, {})
    assert len(seq.output) == 1


@pytest.mark.parametrize("draft_slots", [0, 1, 3])
def test_a_chunk_leaves_room_for_the_drafters_own_rows(draft_slots: int) -> None:
    desk = Desk(Needs(draft_slots=draft_slots), max_num_batched_tokens=10)
    desk.add("a", 20)
    assert rows(desk.step()) == {"a": 10 - draft_slots}


def test_each_sequence_takes_its_draft_slots_from_the_input_budget() -> None:
    desk = Desk(Needs(draft_slots=2), max_num_batched_tokens=12)
    a = desk.add("a", 2)
    desk.step()
    a.draft = [1, 2]
    desk.add("b", 20)
    desk.add("c", 20)
    assert rows(desk.step()) == {"a": 3, "b": 12 - (3 + 2) - 2}, "and nothing is left for c"


def test_nobody_starts_once_only_draft_slots_are_left() -> None:
    desk = Desk(Needs(draft_slots=4), max_num_batched_tokens=8)
    desk.add("a", 4)
    desk.add("b", 1)
    assert rows(desk.step()) == {"a": 4}


def test_prompt_chunks_get_a_share_while_others_decode() -> None:
    desk = Desk(max_num_batched_tokens=16, max_prompt_rows_while_decoding=5)
    desk.add("a", 2)
    desk.step()
    desk.add("b", 12)
    desk.add("c", 4)
    assert rows(desk.step()) == {"a": 1, "b": 5}
    assert rows(desk.step()) == {"a": 1, "b": 5}
    assert rows(desk.step()) == {"a": 1, "b": 2, "c": 3}


def test_without_decodes_a_prompt_takes_the_whole_budget() -> None:
    desk = Desk(max_num_batched_tokens=16, max_prompt_rows_while_decoding=5)
    desk.add("a", 20)
    assert rows(desk.step()) == {"a": 16}


def test_a_long_prompt_is_held_to_the_threshold_unless_alone() -> None:
    desk = Desk(max_num_batched_tokens=32, long_prefill_token_threshold=6)
    desk.add("a", 20)
    assert rows(desk.step()) == {"a": 20}
    desk = Desk(max_num_batched_tokens=32, long_prefill_token_threshold=6)
    desk.add("a", 20)
    desk.add("b", 4)
    assert rows(desk.step()) == {"a": 6, "b": 4}
    assert rows(desk.step()) == {"a": 6, "b": 1}


def test_a_running_long_prompt_leaves_room_for_a_newcomer() -> None:
    desk = Desk(max_num_batched_tokens=12, long_prefill_token_threshold=6)
    desk.add("a", 30)
    assert rows(desk.step()) == {"a": 12}
    desk.add("b", 4)
    assert rows(desk.step()) == {"a": 6, "b": 4}


def test_without_chunks_a_prompt_waits_until_it_fits_whole() -> None:
    desk = Desk(max_num_batched_tokens=10, enable_chunked_prefill=False)
    desk.add("a", 6)
    desk.add("b", 6)
    assert rows(desk.step()) == {"a": 6}
    assert rows(desk.step()) == {"a": 1, "b": 6}


def test_without_chunks_no_threshold_holds_a_prompt_back() -> None:
    desk = Desk(max_num_batched_tokens=32, long_prefill_token_threshold=6, enable_chunked_prefill=False)
    desk.add("a", 10)
    desk.add("b", 12)
    assert rows(desk.step()) == {"a": 10, "b": 12}


def test_running_sequences_come_first_and_at_most_so_many() -> None:
    desk = Desk(max_num_seqs=2)
    for name in "abc":
        desk.add(name, 3)
    assert rows(desk.step()) == {"a": 3, "b": 3}
    plan = desk.step()
    assert [item.seq.request.request_id for item in plan.items] == ["a", "b"]
    assert len(desk.scheduler.waiting) == 1


# --- admission --------------------------------------------------------------------------------


def test_a_prompt_starts_only_if_all_of_it_could_be_held() -> None:
    desk = Desk(num_pages=4, max_model_len=16, max_num_batched_tokens=8)
    desk.add("a", 7)
    desk.step()
    desk.add("b", 9)
    assert rows(desk.step()) == {"a": 1}, "two pages are free, three are needed"
    desk = Desk(num_pages=4, max_model_len=16, max_num_batched_tokens=8)
    desk.add("a", 7)
    desk.step()
    desk.add("b", 8)
    assert rows(desk.step()) == {"a": 1, "b": 7}


def test_the_reserve_counts_pages_only_this_prompt_keeps_alive() -> None:
    desk = Desk(num_pages=4, max_model_len=16)
    done = desk.add("a", 9, SamplingParams(temperature=0.0, max_tokens=1))
    desk.step()
    assert done.is_finished
    desk.add("b", [31, 30])
    desk.step()
    desk.add("c", [*done.tokens[:9], *range(4)])  # 4 pages, 2 of them hits; b owns one of the other two
    assert rows(desk.step()) == {"b": 1}
    assert desk.pages.num_free == 3


def test_lookahead_slots_are_reserved_too() -> None:
    desk = Desk(Needs(lookahead=3), num_pages=8, max_model_len=32)
    a = desk.add("a", 5)
    desk.step()
    assert len(a.table.pages) == 2
    a.draft = [1, 2, 3]
    desk.step()
    assert len(a.table.pages) == 3, "positions 0..8 and three more"


def test_lookahead_ends_at_the_context() -> None:
    desk = Desk(Needs(lookahead=4), num_pages=2, max_model_len=8)
    a = desk.add("a", 6)
    desk.step()
    assert (len(a.table.pages), len(a.tokens)) == (2, 7)
    desk.step()
    assert a.finish_reason == "length"


def test_a_hit_leaves_the_last_token_to_compute() -> None:
    desk = Desk()
    first = desk.add("a", [5] * 9, SamplingParams(temperature=0.0, max_tokens=1))
    desk.step()
    assert first.num_cached_tokens == 0
    again = desk.add("b", [5] * 9)
    plan = desk.step()
    assert (rows(plan), again.num_cached_tokens) == ({"b": 1}, 8)
    assert (plan.prefix_queries, plan.prefix_hits) == (9, 8)
    shorter = desk.add("c", [5] * 8)
    plan = desk.step()
    assert (rows(plan)["c"], shorter.num_cached_tokens) == (4, 4)


def test_prompt_logprobs_read_no_shared_page() -> None:
    desk = Desk()
    desk.add("a", [5] * 9, SamplingParams(temperature=0.0, max_tokens=1))
    desk.step()
    desk.add("b", [5] * 9, SamplingParams(temperature=0.0, prompt_logprobs=0))
    assert rows(desk.step()) == {"b": 9}


def test_output_is_shared_as_well() -> None:
    desk = Desk()
    first = desk.add("a", 3, SamplingParams(temperature=0.0, max_tokens=6))
    while not first.is_finished:
        desk.step()
    desk.add("b", [*first.tokens, 7])
    assert rows(desk.step()) == {"b": 2}


def test_no_page_is_shared_past_the_drafters_own_rows() -> None:
    desk = Desk(Needs(successors=1))
    desk.synced = 5
    desk.add("a", [5] * 12, SamplingParams(temperature=0.0, max_tokens=1))
    desk.step()
    desk.add("b", [5] * 12)
    assert rows(desk.step()) == {"b": 8}


def test_a_guesss_row_is_never_shared() -> None:
    """The refused guess's row fills the page that the last token's row, not yet computed, belongs to."""
    desk = Desk()
    a = desk.add("a", 6, SamplingParams(temperature=0.0, max_tokens=2))
    desk.step(a=[7])
    a.draft = [8]
    desk.step(a=[9])
    assert (a.is_finished, len(a.tokens), a.computed) == (True, 8, 7)
    desk.add("b", [*a.tokens, 1])
    assert rows(desk.step()) == {"b": 5}


# --- the n choices ----------------------------------------------------------------------------


@pytest.mark.parametrize("caching", [True, False])
def test_choices_wait_for_the_first_ones_prompt_and_hit_its_full_pages(caching: bool) -> None:
    desk = Desk(max_num_batched_tokens=6, enable_prefix_caching=caching)
    leader = desk.add("a", 10, SamplingParams(temperature=1.0, n=3, seed=1))
    assert rows(desk.step()) == {"a": 6}
    assert rows(desk.step()) == {"a": 4}
    plan = desk.step()
    assert [item.num_rows for item in plan.items] == [1, 2, 2], "two full pages of four are hits"
    assert [item.seq.index for item in plan.items] == [0, 1, 2]
    assert plan.items[1].seq.table.pages[:2] == leader.table.pages[:2]
    assert (plan.prefix_hits == 16) is caching


def test_others_overtake_choices_that_wait_for_their_leader() -> None:
    desk = Desk(max_num_batched_tokens=8)
    desk.add("a", 6, SamplingParams(temperature=1.0, n=2, seed=1))
    desk.add("b", 2)
    assert rows(desk.step()) == {"a": 6, "b": 2}


def test_without_caching_requests_do_not_share() -> None:
    desk = Desk(enable_prefix_caching=False)
    for name in "ab":
        desk.add(name, [5] * 9, SamplingParams(temperature=1.0, n=2, seed=1))
        assert rows(desk.step())[name] == 9
        desk.step()


def test_tenants_do_not_share() -> None:
    desk = Desk()
    for tenant, expected in (("x", 9), ("y", 9), ("x", 1)):
        desk.add(tenant, [5] * 9, SamplingParams(temperature=0.0, max_tokens=1), tenant=tenant)
        assert rows(desk.step()) == {tenant: expected}


# --- the queue --------------------------------------------------------------------------------


def test_a_full_queue_refuses() -> None:
    desk = Desk(max_waiting=2)
    desk.add("a", 3)
    with pytest.raises(Overloaded, match="try again later"):
        desk.add("b", 3, SamplingParams(temperature=1.0, n=2))
    assert len(desk.scheduler.waiting) == 1, "none of a request that is refused stays"
    desk.add("c", 3)


def test_first_come_first_served() -> None:
    desk = Desk(max_num_seqs=1)
    for name in "abc":
        desk.add(name, 2, SamplingParams(temperature=0.0, max_tokens=1))
    assert [next(iter(rows(desk.step()))) for _ in range(3)] == ["a", "b", "c"]


def test_lower_number_first_then_arrival_then_order() -> None:
    desk = Desk(policy="priority", max_num_seqs=1)
    once = SamplingParams(temperature=0.0, max_tokens=1)
    for name, priority, arrival in (
        ("a", 1, 1.0),
        ("b", 0, 5.0),
        ("c", 0, 4.0),
        ("d", 1, 1.0),
        ("e", -1, 9.0),
    ):
        desk.add(name, 2, once, priority=priority, arrival=arrival)
    assert [next(iter(rows(desk.step()))) for _ in range(5)] == ["e", "c", "b", "a", "d"]
