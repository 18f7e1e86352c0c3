"""Every token passes one at a time, and the cut is decided there."""

from __future__ import annotations

import pytest

from specserve.engine.sequence import Sequence
from specserve.types import Commit, DraftStats, SamplingParams
from tests.support.desk import Desk
from tests.support.engine import EOS, letters

A, B, C, D = range(4)


def verified(
    params: SamplingParams, draft: list[int], generated: list[int], extra_eos: frozenset[int] = frozenset()
) -> tuple[Sequence, DraftStats, Commit]:
    """A sequence whose prompt gave token 9, after one verification."""
    desk = Desk(tokenizer=letters(), extra_eos=extra_eos)
    seq = desk.add("a", [20, 21, 22], params)
    desk.step(a=[9])
    seq.draft = list(draft)
    desk.step(a=generated)
    return seq, desk.drafts[0], desk.commits[0]


def params(**more: object) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 32, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("draft", "generated", "accepted", "histogram"),
    [
        ([1, 2, 3], [1, 2, 3, 4], 3, [0, 0, 0, 1]),
        ([1, 2, 3], [1, 5], 1, [0, 1, 0, 0]),
        ([1, 2], [1, 2, 5], 2, [0, 0, 1]),
        ([1], [1, 2], 1, [0, 1]),
        ([4, 5, 6], [8], 0, [1, 0, 0, 0]),
    ],
)
def test_stats_count_what_the_rule_accepted(
    draft: list[int], generated: list[int], accepted: int, histogram: list[int]
) -> None:
    seq, stats, commit = verified(params(), draft, generated)
    assert stats == DraftStats(len(draft), accepted, 0)
    assert seq.output == [9, *generated]
    assert (commit.start, commit.end) == (3, 4 + accepted)
    assert seq.computed == len(seq.tokens) - 1
    assert seq.spec is not None
    assert seq.spec.acceptance_histogram == histogram + [0] * (9 - len(histogram))
    assert seq.spec.acceptance_histogram_by_draft_length == {len(draft): histogram}


def test_no_drafts_leave_no_stats() -> None:
    desk = Desk()
    seq = desk.add("a", 3)
    desk.step()
    desk.step(a=[5])
    assert desk.drafts == []
    assert seq.spec is not None
    assert seq.spec.num_spec_steps == 0
    assert seq.spec.mean_acceptance_length == 1.0


@pytest.mark.parametrize(
    ("more", "kept", "reason", "stop_reason"),
    [
        ({}, [A, EOS], "stop", None),
        ({"ignore_eos": True}, [A, EOS, B, C], None, None),
        ({"stop_token_ids": [A]}, [A], "stop", A),
        ({"stop_token_ids": [B]}, [A, EOS], "stop", None),
        ({"stop_token_ids": [B], "ignore_eos": True}, [A, EOS, B], "stop", B),
        ({"stop_token_ids": [EOS]}, [A, EOS], "stop", None),
        ({"stop_token_ids": [EOS], "ignore_eos": True}, [A, EOS], "stop", EOS),
        ({"max_tokens": 2}, [A], "length", None),
        ({"max_tokens": 3}, [A, EOS], "stop", None),
        ({"max_tokens": 4, "ignore_eos": True}, [A, EOS, B], "length", None),
        ({"max_tokens": 5, "ignore_eos": True}, [A, EOS, B, C], "length", None),
    ],
)
def test_the_first_end_cuts_the_block(
    more: dict[str, object], kept: list[int], reason: str | None, stop_reason: int | None
) -> None:
    seq, stats, commit = verified(params(**more), [A, EOS, B], [A, EOS, B, C])
    assert seq.output == [9, *kept]
    assert (seq.finish_reason, seq.stop_reason) == (reason, stop_reason)
    assert stats == DraftStats(3, min(3, len(kept)), 3 - min(3, len(kept)))
    assert commit.end == 3 + len(kept), "the last token has no row unless a token follows it"


def test_two_tokens_of_a_full_block_when_only_two_may_come() -> None:
    seq, stats, _ = verified(params(max_tokens=3), [1, 2, 3], [1, 2, 3, 4])
    assert (seq.output, seq.finish_reason) == ([9, 1, 2], "length")
    assert stats == DraftStats(drafted=3, accepted=2, discarded=1)
    assert seq.spec is not None
    assert seq.spec.acceptance_histogram[:4] == [0, 0, 0, 1], "counted as the rule accepted, before the cut"


def test_a_models_further_end_tokens_are_stop_ids_unless_ignored() -> None:
    seq, _, _ = verified(params(), [A, B], [A, B, C], extra_eos=frozenset({B}))
    assert (seq.output[1:], seq.stop_reason) == ([A, B], B)
    seq, _, _ = verified(params(ignore_eos=True), [A, B], [A, B, C], extra_eos=frozenset({B}))
    assert seq.output[1:] == [A, B, C]


@pytest.mark.parametrize(
    ("more", "text", "num_kept"),
    [
        ({"stop": "bc"}, "ja", 3),
        ({"stop": "bc", "include_stop_str_in_output": True}, "jabc", 3),
        ({"stop": ["d", "c", "abcd"]}, "jab", 3),
        ({"stop": "ja"}, "", 1),
        ({"stop": "bc", "min_tokens": 4}, "jabcd", 4),
        ({"stop": "d", "min_tokens": 4}, "jabc", 4),
        ({"stop": "d", "max_tokens": 5}, "jabc", 4),
    ],
)
def test_a_stop_string_cuts_tokens_and_text_alike(more: dict[str, object], text: str, num_kept: int) -> None:
    seq, _, _ = verified(params(**more), [A, B, C], [A, B, C, D])
    assert seq.stream is not None
    assert seq.output == [9, A, B, C, D][: 1 + num_kept]
    assert seq.stream.text == text
    assert seq.finish_reason == ("stop" if text != "jabcd" else None)
    assert seq.stop_reason is None or seq.stop_reason in ("bc", "c", "ja", "d")


def test_an_end_tokens_text_is_hidden_unless_asked_for() -> None:
    for included, text in ((False, "ja"), (True, "jab")):
        more = {"stop_token_ids": [B], "include_stop_str_in_output": included}
        seq, _, _ = verified(params(**more), [A, B], [A, B, C])
        assert seq.stream is not None
        assert (seq.stream.text, seq.output[1:]) == (text, [A, B])


def test_an_end_token_outranks_a_stop_string_it_completes() -> None:
    more = {"stop_token_ids": [B], "stop": "ab", "include_stop_str_in_output": True}
    seq, _, _ = verified(params(**more), [A, B], [A, B, C])
    assert (seq.output[1:], seq.stop_reason) == ([A, B], B)


def test_a_chunk_commits_its_rows_and_emits_nothing() -> None:
    desk = Desk(max_num_batched_tokens=4)
    seq = desk.add("a", 6)
    desk.step()
    assert [(c.start, c.end, c.row) for c in desk.commits] == [(0, 4, 0)]
    assert (seq.computed, seq.output, seq.is_prompt_done) == (4, [], False)
    assert len(desk.commits[0].tokens) > 4, "the token after the last row is known"
    desk.step(a=[7])
    assert [(c.start, c.end) for c in desk.commits] == [(4, 6)]
    assert (seq.computed, seq.output, seq.is_prompt_done) == (6, [7], True)


def test_commits_name_rows_tables_and_sequences_in_order() -> None:
    desk = Desk()
    a, b = desk.add("a", 3), desk.add("b", 5)
    desk.step()
    assert [(c.seq_id, c.row, c.end) for c in desk.commits] == [(a.seq_id, 0, 3), (b.seq_id, 3, 5)]
    a.draft = [1, 2]
    desk.step(a=[1, 4])
    assert [(c.start, c.end, c.row) for c in desk.commits] == [(3, 5, 0), (5, 6, 3)]
    assert desk.commits[0].block_table is a.table.pages
