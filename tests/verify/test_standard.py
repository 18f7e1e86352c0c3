"""One draw per index decides; the p/q test for sampled drafts. The law itself is in the contract suite."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from specserve.ops import reference_ops
from specserve.ops.philox import ACCEPT, DRAFT, RESIDUAL, TARGET, uniforms
from specserve.sampling.process import RowGroup, SequenceSampling, process
from specserve.types import Draft, RowRng, SamplingParams, SamplingRows, Verdict
from specserve.verify.standard import verify
from tests.support.law import check_law, drawn_draft

OPS = reference_ops()
P = torch.tensor([0.5, 0.3, 0.2])
Q = torch.tensor([0.2, 0.3, 0.5])


def run(
    logits: Tensor, draft: Draft, temperatures: list[float], seeds: list[int], indices: list[int]
) -> Verdict:
    return verify(OPS, logits, draft, SamplingRows(temperatures), RowRng(seeds, indices))


# --- deterministic drafts ---------------------------------------------------------------------


def test_the_own_token_of_each_row_is_drawn_at_its_own_index() -> None:
    logits = torch.randn(5, 50, generator=torch.Generator().manual_seed(1))
    own = OPS.draw(logits, [1.0] * 5, [9] * 5, [20, 21, 22, 23, 24], TARGET).tolist()
    verdict = run(logits, Draft([own[:4]]), [1.0], [9], [20])
    assert (verdict.accepted, verdict.next_tokens) == ([4], [own[4]])
    wrong = [*own[:2], (own[2] + 1) % 50, own[3]]
    verdict = run(logits, Draft([wrong]), [1.0], [9], [20])
    assert (verdict.accepted, verdict.next_tokens) == ([2], [own[2]])


def test_greedy_and_random_sequences_share_a_batch() -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(2))
    best = logits.argmax(1).tolist()
    own = OPS.draw(logits, [1.0] * 6, [5] * 6, [7, 8, 9, 7, 8, 9], TARGET).tolist()
    verdict = run(logits, Draft([best[:2], own[3:5]]), [0.0, 1.0], [5, 5], [7, 7])
    assert (verdict.accepted, verdict.next_tokens) == ([2, 2], [best[2], own[5]])


def test_one_accept_test_for_all_rows_of_a_step() -> None:
    calls = []

    def counted(*arguments: object) -> object:
        calls.append(arguments)
        return OPS.accept(*arguments)

    ops = type(OPS)(**{**vars(OPS), "accept": counted})
    logits = torch.randn(9, 20)
    verify(
        ops,
        logits,
        Draft([[1, 2], [], [3, 4, 5, 6]]),
        SamplingRows([0.0, 1.0, 0.5]),
        RowRng([1] * 3, [2] * 3),
    )
    assert len(calls) == 1


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("guess", [0, 1, 2])
@pytest.mark.parametrize(
    ("params", "law"),
    [
        ({}, [0.5, 0.3, 0.2]),
        ({"temperature": 0.5}, [0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38]),
        ({"top_p": 0.7}, [0.625, 0.375, 0.0]),
        ({"min_p": 0.5}, [0.625, 0.375, 0.0]),
    ],
)
def test_recipe_24_the_draw_is_fair(params: dict[str, float], law: list[float], k: int, guess: int) -> None:
    """The first token of many steps that all propose the same guess."""
    n = 3_000
    one = SequenceSampling(
        SamplingParams(**params),
        prompt_token_ids=[],
        stop_ids=frozenset(),
        bad_words_ids=[],
        vocab_size=3,  # type: ignore[arg-type]
    )
    groups = [RowGroup(i * (1 + k), one, [], [guess] * k) for i in range(n)]
    logits = process(OPS, P.log().repeat(n * (1 + k), 1), groups)
    verdict = run(logits, Draft([[guess] * k] * n), [one.temperature] * n, list(range(n)), [4] * n)
    pairs = zip(verdict.accepted, verdict.next_tokens, strict=True)
    first = [guess if kept else following for kept, following in pairs]
    check_law(np.bincount(first, minlength=3), np.array(law))


# --- drawn drafts ---------------------------------------------------------------------------


def test_recipe_24_the_residual_is_normalised() -> None:
    """Given a refusal the next token follows max(p - q, 0) = (0.3, 0, 0): always id 0. Acceptance is 0.7."""
    n = 20_000
    seeds = list(range(n))
    guesses = OPS.draw(Q.log().expand(n, 3), [1.0] * n, seeds, [5] * n, DRAFT).tolist()
    draft = drawn_draft([[token] for token in guesses], Q.expand(n, 1, 3))
    verdict = run(P.log().repeat(2 * n, 1), draft, [1.0] * n, seeds, [5] * n)
    accepted = np.array(verdict.accepted, bool)
    check_law(np.bincount(accepted, minlength=2), np.array([0.3, 0.7]))
    following = np.array(verdict.next_tokens)
    assert (following[~accepted] == 0).all()
    check_law(np.bincount(following[accepted], minlength=3), P.double().numpy())
    check_law(np.bincount(np.where(accepted, guesses, following), minlength=3), P.double().numpy())


def test_a_guess_is_kept_iff_p_exceeds_u_times_q() -> None:
    n = 2_000
    u = uniforms(range(n), [5] * n, ACCEPT)
    verdict = run(
        P.log().repeat(2 * n, 1),
        drawn_draft([[2]] * n, Q.expand(n, 1, 3)),
        [1.0] * n,
        list(range(n)),
        [5] * n,
    )
    assert verdict.accepted == [int(number * 0.5 < 0.2) for number in u]


def test_a_refused_guess_is_replaced_with_residual_noise_and_the_bonus_has_the_targets() -> None:
    logits, q = P.log().repeat(2, 1), torch.tensor([[[0.0, 0.1, 0.9]]])
    for seed in range(40):
        verdict = run(logits, drawn_draft([[2]], q), [1.0], [seed], [5])
        if verdict.accepted == [1]:
            assert verdict.next_tokens == OPS.draw(logits[:1], [1.0], [seed], [6], TARGET).tolist()
        else:
            residual = (P - q[0, 0]).clamp(min=0).log()[None]
            assert verdict.next_tokens == OPS.draw(residual, [1.0], [seed], [5], RESIDUAL).tolist()


@pytest.mark.parametrize("token", [3, -1, 2**40, 1])
def test_a_guess_that_q_cannot_have_drawn_counts_as_none(token: int) -> None:
    """Outside the vocabulary, or (id 1) of probability 0 under q: the own token follows."""
    logits, q = P.log().repeat(3, 1), torch.tensor([[[0.5, 0.0, 0.5]] * 2])
    own = OPS.draw(logits[:1], [1.0], [3], [5], TARGET).tolist()
    verdict = run(logits, drawn_draft([[token, 0]], q), [1.0], [3], [5])
    assert (verdict.accepted, verdict.next_tokens) == ([0], own)


def test_a_reduced_vocabulary_equals_the_full_one_with_zeros() -> None:
    n = 500
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(n * 3, 12, generator=generator)
    q_ids = torch.tensor([7, 2, 11, 40])  # the target has no id 40
    q = torch.rand(n, 2, 4, generator=generator).softmax(2)
    full = torch.zeros(n, 2, 12).index_copy(2, q_ids[:3], q[:, :, :3])
    tokens = q_ids[torch.randint(0, 3, (n, 2), generator=generator)].tolist()
    keys = [1.0] * n, list(range(n)), [9] * n
    reduced = run(logits, drawn_draft(tokens, q, q_ids), *keys)
    assert reduced == run(logits, drawn_draft(tokens, full), *keys)
    assert 0 < sum(reduced.accepted) < 2 * n


@pytest.mark.parametrize("draft_vocab_size", [2, 5])
def test_vocabularies_of_different_sizes_meet_in_their_common_ids(draft_vocab_size: int) -> None:
    q = torch.full((1, 1, draft_vocab_size), 1 / draft_vocab_size)
    for seed in range(60):
        verdict = run(P.log().repeat(2, 1), drawn_draft([[1]], q), [1.0], [seed], [0])
        assert 0 <= verdict.next_tokens[0] < 3


def test_p_equal_to_q_accepts_everything() -> None:
    n = 300
    tokens = [[int(seed) % 3, 0] for seed in range(n)]
    draft = drawn_draft(tokens, P.expand(n, 2, 3))
    assert run(P.log().repeat(3 * n, 1), draft, [1.0] * n, list(range(n)), [0] * n).accepted == [2] * n


def test_a_residual_of_nothing_falls_back_to_p() -> None:
    q = torch.tensor([[[1.0, 1.0, 1.0]]])  # more than p everywhere
    for seed in range(30):
        verdict = run(P.log().repeat(2, 1), drawn_draft([[2]], q), [1.0], [seed], [0])
        assert 0 <= verdict.next_tokens[0] < 3


@pytest.mark.parametrize("value", [torch.nan, -torch.inf, torch.inf])
def test_rows_without_finite_logits_emit_ids_inside_the_vocabulary(value: float) -> None:
    verdict = run(
        torch.full((6, 3), value),
        drawn_draft([[2, 1], [0, 1]], Q.expand(2, 2, 3)),
        [1.0, 0.0],
        [3, 4],
        [5, 6],
    )
    assert all(0 <= token < 3 for token in verdict.next_tokens)


def test_greedy_sequences_ignore_q() -> None:
    logits = torch.tensor(
        [[0.0, 1.0, 0.5], [0.0, 0.2, 0.5], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [3.0, 0.0, 0.0]]
    )
    draft = drawn_draft([[1, 2], [0]], Q.expand(2, 2, 3))
    verdict = run(logits, draft, [0.0, 1.0], [3, 4], [5, 6])
    assert (verdict.accepted[0], verdict.next_tokens[0]) == (2, 0)
