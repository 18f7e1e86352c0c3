"""Every parameter on every row, each row seeing the guesses before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specserve.ops import Ops, reference_ops
from specserve.sampling.failure import Failure, NothingAllowedError
from specserve.sampling.process import RowGroup, SequenceSampling, process
from specserve.types import Draft, RowRng, SamplingParams, SamplingRows
from specserve.verify import load_verifier
from tests.support.stub import hash_rule

OPS = reference_ops()
V = 8
STANDARD = load_verifier("standard")
FAILED = -1


def sampling(
    prompt: Sequence[int] = (),
    stop_ids: Iterable[int] = (),
    bad_words: list[list[int]] | None = None,
    vocab_size: int = V,
    **params: Any,
) -> SequenceSampling:
    return SequenceSampling(
        SamplingParams(**{"temperature": 0.0, "max_tokens": 1000, **params}),
        prompt_token_ids=prompt,
        stop_ids=frozenset(stop_ids),
        bad_words_ids=bad_words or [],
        vocab_size=vocab_size,
    )


def processed(
    logits: Tensor, one: SequenceSampling, output: Sequence[int] = (), draft: Sequence[int] = ()
) -> Tensor:
    """All rows of one sequence, from one row repeated."""
    return process(OPS, logits.repeat(1 + len(draft), 1), [RowGroup(0, one, output, draft)])


def verified(
    logits: Tensor, one: SequenceSampling, output: Sequence[int], draft: list[int], seed: int = 0
) -> list[int]:
    """What one step emits; `FAILED` in place of a token that nothing is allowed for."""
    failures: dict[int, Failure] = {}
    rows = process(OPS, logits.clone(), [RowGroup(0, one, output, draft)], failures)
    verdict = STANDARD(
        OPS, rows, Draft([draft]), SamplingRows([one.temperature]), RowRng([seed], [100 + len(output)])
    )
    emitted = [*draft[: verdict.accepted[0]], verdict.next_tokens[0]]
    if 0 in failures and failures[0].row < len(emitted):
        return [*emitted[: failures[0].row], FAILED]
    return emitted


# --- each parameter ---------------------------------------------------------------------------


def rows_of_99(*best: int) -> Tensor:
    """One row per id in `best`: 100 for it, 99 for the id after it, 0 elsewhere."""
    rows = torch.zeros(len(best), V)
    for row, token in zip(rows, best, strict=True):
        row[token], row[token + 1] = 100.0, 99.0
    return rows


@pytest.mark.parametrize(("penalty", "emitted"), [(1.5, [1, 2]), (0.7, [1, 1, 2]), (0.0, [1, 1, 1, 1])])
@pytest.mark.parametrize("name", ["frequency_penalty", "presence_penalty"])
def test_earlier_guesses_count_with_multiplicity(name: str, penalty: float, emitted: list[int]) -> None:
    one = sampling(**{name: penalty})
    if name == "presence_penalty" and penalty == 0.7:
        emitted = [1, 1, 1, 1]  # presence is subtracted once, 0.7 never closes the gap of 1
    assert verified(rows_of_99(1, 1, 1, 1), one, [], [1, 1, 1]) == emitted


def test_prompt_counts_for_repetition_but_not_for_frequency_and_presence() -> None:
    row = torch.ones(V)
    assert processed(row, sampling([3], repetition_penalty=2.0))[0, 3] == 0.5
    for name in ("frequency_penalty", "presence_penalty"):
        assert processed(row, sampling([3], **{name: 1.0}))[0, 3] == 1.0


def test_penalties_combine_in_order() -> None:
    one = sampling([2], repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    found = processed(torch.tensor([4.0, -4.0, 1.0, 3.0, 0, 0, 0, 0]), one, [0, 0, 1], [3])
    assert found[0, :4].tolist() == [4 / 2 - 2 * 0.5 - 0.25, -8 - 0.5 - 0.25, 0.5, 3.0]
    assert found[1, :4].tolist() == [4 / 2 - 2 * 0.5 - 0.25, -8 - 0.5 - 0.25, 0.5, 3 / 2 - 0.5 - 0.25]


def test_recipe_08_frequency_penalties_of_both_signs_differ() -> None:
    logits = torch.tensor([1.0, 0.9, 0.8, 0.7, 0.0, 0.0, 0.0, 0.0])
    texts = []
    for penalty in (-2.0, 2.0):
        text: list[int] = []
        while len(text) < 8:
            text += verified(logits.repeat(3, 1), sampling(frequency_penalty=penalty), text, text[-1:] * 2)
        texts.append(text[:8])
    assert texts == [[0] * 8, [0, 1, 2, 3, 4, 5, 6, 7]]


def test_min_tokens_forbids_stop_ids_by_output_position_not_by_step() -> None:
    one = sampling(stop_ids=[6, 7, 99], min_tokens=5)
    found = processed(torch.ones(V), one, [0, 0, 0], [1, 1, 1])
    assert (found == -torch.inf).tolist() == [
        [False] * 6 + [early] * 2 for early in (True, True, False, False)
    ]


def test_recipe_06_the_end_token_is_impossible_for_exactly_min_tokens() -> None:
    logits = torch.zeros(9, V)
    logits[:, 7] = 5.0
    one, text = sampling(stop_ids=[7], min_tokens=20), []
    while 7 not in text:
        text += verified(logits, one, text, [0] * 8)
    assert text.index(7) == 20


def test_a_row_of_nothing_but_stop_ids_keeps_them() -> None:
    one = sampling(stop_ids=[3, 4], min_tokens=9, allowed_token_ids=[3, 4])
    found = processed(torch.arange(8.0), one, [], [3])
    assert found[:, 3:5].tolist() == [[3.0, 4.0]] * 2
    assert (found == -torch.inf).sum() == 2 * 6


def test_only_allowed_ids_stay_possible_whatever_the_guess() -> None:
    one = sampling(allowed_token_ids=[2, 5, 5, 99], logit_bias={1: 100.0})
    found = processed(torch.arange(8.0), one, [], [7, 2])
    assert (found > -torch.inf).tolist() == [[i in (2, 5) for i in range(8)]] * 3
    assert verified(torch.arange(8.0).repeat(3, 1), one, [], [7, 2]) == [5], (
        "a first guess that is not allowed"
    )
    assert verified(torch.arange(8.0).repeat(3, 1), one, [], [5, 5]) == [5, 5, 5]


def test_logit_bias_is_added_before_penalties() -> None:
    one = sampling([1], logit_bias={1: 3.0, 2: -1.0}, repetition_penalty=2.0)
    assert processed(torch.ones(V), one)[0, :4].tolist() == [1.0, 2.0, 0.0, 1.0]


def test_bad_words_are_matched_across_output_and_guesses() -> None:
    one = sampling([1, 2], bad_words=[[4], [1, 2, 3], [5, 5]])
    found = processed(torch.zeros(V), one, [0, 1], [2, 5, 5])
    banned = [set((row == -torch.inf).nonzero()[:, 0].tolist()) for row in found]
    assert banned == [{4}, {3, 4}, {4, 5}, {4, 5}]
    assert processed(torch.zeros(V), one, [], [])[0, 3] == 0.0, "the prompt does not complete a word"


def test_bad_words_of_one_sequence_leave_its_neighbours_alone() -> None:
    groups = [
        RowGroup(0, sampling(bad_words=[[1]]), [], [0]),
        RowGroup(2, sampling(), [], [0]),
        RowGroup(4, sampling(bad_words=[[2]]), [], []),
    ]
    found = process(OPS, torch.zeros(5, V), groups) == -torch.inf
    assert found.nonzero().tolist() == [[0, 1], [1, 1], [4, 2]]


@pytest.mark.parametrize("temperature", [0.7, 1.0, 0.001])
def test_random_rows_are_divided_by_temperature_and_greedy_rows_are_not(temperature: float) -> None:
    row = torch.randn(V)
    one = sampling(temperature=temperature)
    assert torch.equal(processed(row, one)[0], row / max(temperature, 0.01))
    assert torch.equal(processed(row, sampling())[0], row)


def test_truncation_acts_after_temperature_and_not_on_greedy_rows() -> None:
    row = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0])
    kept = [({"min_p": 0.3}, 3), ({"top_k": 2}, 2), ({"top_p": 0.7}, 3), ({"top_k": -1}, 8)]
    for params, number in kept:  # at temperature 2 a step of 1 is a factor of e^-0.5 = 0.61
        found = processed(row, sampling(temperature=2.0, **params))[0]
        assert torch.equal(found[:number], row[:number] / 2.0)
        assert (found[number:] == -torch.inf).all()
        assert torch.equal(processed(row, sampling(**params))[0], row)


def test_recipe_07_min_p_emits_nothing_less_likely_than_half_the_best() -> None:
    generator = torch.Generator().manual_seed(2)
    one = sampling(temperature=1.5, min_p=0.5)
    for seed in range(100):
        logits = torch.randn(4, V, generator=generator)
        guess = [int(token) for token in torch.randint(0, V, (3,), generator=generator)]
        for row, token in zip(logits, verified(logits, one, [], guess, seed), strict=False):
            assert row[token] / 1.5 >= row.max() / 1.5 + np.log(0.5) - 1e-6


@pytest.mark.parametrize(
    "params", [{"top_k": 1}, {"top_k": 5}, {"top_k": 99}, {"top_p": 0.5}, {"top_p": 0.99}]
)
def test_top_k_and_top_p_never_emit_outside_the_allowed_set(params: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(3)
    one = sampling(temperature=1.0, vocab_size=100, **params)
    for seed in range(60):
        logits = torch.randn(4, 100, generator=generator)
        guess = logits.argmax(1).tolist()[:3]
        possible = OPS.truncate(logits.clone(), [one.top_k] * 4, [one.top_p] * 4, [0.0] * 4) > -torch.inf
        for row, token in zip(possible, verified(logits, one, [], guess, seed), strict=False):
            assert row[token]


def test_guesses_outside_the_vocabulary_are_ignored_and_refused() -> None:
    one = sampling(
        frequency_penalty=1.0, repetition_penalty=1.2, bad_words=[[99, 2]], min_tokens=3, stop_ids=[1]
    )
    logits = torch.randn(4, V, generator=torch.Generator().manual_seed(0))
    expected = process(OPS, logits[:1].clone(), [RowGroup(0, one, [], [])])
    found = process(OPS, logits.clone(), [RowGroup(0, one, [], [99, -1, 2**40])])
    assert torch.equal(found[:1], expected)
    assert verified(logits, one, [], [99, -1, 2**40]) == [int(expected.argmax())]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_nothing_comes_from_a_row_in_which_all_is_forbidden(temperature: float) -> None:
    one = sampling(allowed_token_ids=[2, 3], bad_words=[[3], [2, 2, 2]], temperature=temperature)
    rows = torch.zeros(4, V)
    assert verified(rows, one, [], [2, 2, 2]) == [2, 2, FAILED]
    assert verified(rows[:2], one, [], [2]) == [2, 2]
    assert verified(rows[:1], one, [2, 2], []) == [FAILED]
    assert verified(rows, one, [], [2, 4, 2]) == [2, 2]  # the rows behind a refused guess cost nothing


def test_without_a_place_for_failures_an_empty_row_is_raised() -> None:
    one = sampling(allowed_token_ids=[2], bad_words=[[2]])
    with pytest.raises(NothingAllowedError, match="No token is left"):
        process(OPS, torch.zeros(1, V), [RowGroup(0, one, [], [])])


def test_an_empty_row_leaves_the_others_alone() -> None:
    empty, full = sampling(allowed_token_ids=[2], bad_words=[[2]]), sampling(allowed_token_ids=[2])
    failures: dict[int, Failure] = {}
    groups = [RowGroup(0, full, [], [2]), RowGroup(2, empty, [], [2]), RowGroup(4, full, [], [])]
    rows = process(OPS, torch.ones(5, V), groups, failures)
    assert [*failures] == [1]
    assert rows.argmax(1).tolist() == [2, 2, 0, 0, 2]
    assert torch.equal(rows[2:4], torch.zeros(2, V))


def test_all_nan_rows_emit_ids_inside_the_vocabulary() -> None:
    for params in ({}, {"temperature": 0.9, "top_p": 0.9, "top_k": 3, "min_p": 0.1}):
        one = sampling([1], frequency_penalty=1.0, bad_words=[[0]], min_tokens=2, stop_ids=[3], **params)
        for draft in ([], [0, 99, 1]):
            logits = torch.full((1 + len(draft), V), torch.nan)
            assert all(0 <= token < V for token in verified(logits, one, [5], draft))


def test_nothing_asked_means_nothing_done() -> None:
    def refuse(*_: object) -> Tensor:
        raise AssertionError("an op ran")

    ops = Ops(**dict.fromkeys(Ops.__dataclass_fields__, refuse))
    logits = torch.randn(5, V)
    logits[1, 2] = torch.nan
    groups = [RowGroup(0, sampling(), [1], [2, 3]), RowGroup(3, sampling(top_k=3, top_p=0.5), [], [0])]
    assert not any(group.sampling.needs_processing for group in groups)
    found = process(ops, logits.clone(), groups)
    assert torch.equal(found.view(torch.int32), logits.view(torch.int32))


@pytest.mark.parametrize(
    ("params", "changes"),
    [
        ({}, False),
        ({"temperature": 1.0}, False),
        ({"temperature": 0.0, "top_p": 0.5}, False),
        ({"temperature": 0.5}, True),
        ({"temperature": 1.0, "top_k": 3}, True),
        ({"temperature": 0.0, "presence_penalty": 0.5}, True),
    ],
)
def test_a_sequence_says_whether_its_rows_will_change(params: dict[str, Any], changes: bool) -> None:
    logits = torch.randn(2, V)
    one = sampling([1], **params)
    assert one.changes_logits == changes
    assert torch.equal(process(OPS, logits.clone(), [RowGroup(0, one, [1], [2])]), logits) != changes


# --- together ---------------------------------------------------------------------------------

MANY_PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 1.7]),
        "top_k": st.integers(0, 12),
        "top_p": st.sampled_from([0.2, 0.8, 0.95]),
        "min_p": st.sampled_from([0.05, 0.4]),
        "repetition_penalty": st.sampled_from([0.8, 1.3]),
        "frequency_penalty": st.sampled_from([-1.0, 0.6]),
        "presence_penalty": st.sampled_from([-0.5, 0.8]),
        "logit_bias": st.dictionaries(st.integers(0, 31), st.sampled_from([-100.0, 2.5]), max_size=3),
        "allowed_token_ids": st.lists(st.integers(0, 31), min_size=3, max_size=9),
        "min_tokens": st.integers(1, 10),
    },
)
BAD_WORDS = st.lists(st.lists(st.integers(0, 31), min_size=1, max_size=2), max_size=4)


def write(
    params: dict[str, Any], bad_words: list[list[int]], seed: int, drafts: list[list[int]], num_tokens: int
) -> list[int]:
    """A text of `num_tokens`; `drafts` are used in turn, 100 in one standing for the row's best."""
    rule, prompt = hash_rule(32, surprise=3), [3, 1, 4, 1, 5]
    one = sampling(prompt, [31, 30], bad_words, 32, **params)
    text: list[int] = []
    step = 0
    while len(text) < num_tokens and FAILED not in text:
        draft = list(drafts[step % len(drafts)])
        for i, token in enumerate(draft):
            if token == 100:
                past = np.array([*prompt, *text, *(t % 32 for t in draft[:i])])
                draft[i] = int(rule(past, len(past) - 1).argmax())
        ids = np.array([*prompt, *text, *(token % 32 for token in draft)])
        logits = torch.from_numpy(rule(ids, len(ids) - 1 - len(draft))).clone()
        text += verified(logits, one, text, draft, seed)
        step += 1
    return text[:num_tokens]


@settings(deadline=None, max_examples=150)
@given(
    MANY_PARAMS,
    BAD_WORDS,
    st.integers(0, 2**64 - 1),
    st.lists(st.lists(st.sampled_from([100, 100, 100, 0, 7, 31, 33, 5]), max_size=5), min_size=1, max_size=4),
)
def test_a_seed_gives_one_text_with_any_guesses_and_any_parameters(
    params: dict[str, Any], bad_words: list[list[int]], seed: int, drafts: list[list[int]]
) -> None:
    plain = write(params, bad_words, seed, [[]], 14)
    assert write(params, bad_words, seed, drafts, 14) == plain


def crowd() -> tuple[Tensor, list[RowGroup]]:
    """Sequences that ask for everything, alone and together, over a vocabulary wide enough for every path."""
    wide = 6000
    everything: list[dict[str, Any]] = [
        {},
        {"temperature": 0.8},
        {"temperature": 0.9, "top_p": 0.95},
        {"temperature": 1.2, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
        {"repetition_penalty": 1.3, "frequency_penalty": 0.5},
        {"temperature": 0.7, "presence_penalty": -0.5, "min_tokens": 20, "logit_bias": {5: 4.0}},
        {"temperature": 1.0, "allowed_token_ids": list(range(100, 5000))},
        {"temperature": 1.0, "min_p": 0.2},
    ]
    groups = []
    first = 0
    for i, params in enumerate(everything):
        one = sampling(range(i, 300), [7, 8], [[1], [5, 6]], wide, **params)
        draft = [int(token) for token in np.random.default_rng(i).integers(0, wide, i % 4)]
        groups.append(RowGroup(first, one, list(range(50 * i)), draft))
        first += 1 + len(draft)
    return torch.randn(first, wide, generator=torch.Generator().manual_seed(9)) * 3, groups


def test_rows_are_bitwise_the_same_alone_and_in_a_batch() -> None:
    logits, groups = crowd()
    together = process(OPS, logits.clone(), groups)
    temperatures = [group.sampling.temperature for group in groups]
    draft = Draft([list(group.draft) for group in groups])
    seeds, indices = list(range(len(groups))), [40 + i for i in range(len(groups))]
    verdict = STANDARD(OPS, together, draft, SamplingRows(temperatures), RowRng(seeds, indices))
    for i, group in enumerate(groups):
        own = logits[group.first_row : group.end_row].clone()
        alone = process(OPS, own, [RowGroup(0, group.sampling, group.output_token_ids, group.draft)])
        assert torch.equal(alone, together[group.first_row : group.end_row])
        one = STANDARD(
            OPS,
            alone,
            Draft([draft.tokens[i]]),
            SamplingRows(temperatures[i : i + 1]),
            RowRng([seeds[i]], [indices[i]]),
        )
        assert (one.accepted, one.next_tokens) == ([verdict.accepted[i]], [verdict.next_tokens[i]])


def test_the_number_of_threads_changes_nothing() -> None:
    logits, groups = crowd()
    before = torch.get_num_threads()
    found = []
    try:
        for num_threads in (1, 2):
            torch.set_num_threads(num_threads)
            found.append(process(OPS, logits.clone(), groups))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
