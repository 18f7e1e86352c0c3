"""The verifier suite over all lossless rules, and over broken ones that must not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import DRAFT, RESIDUAL, TARGET
from specserve.types import Draft, RowRng, SamplingRows, Verdict
from specserve.verify import VERIFIERS, Verify, greedy, load_verifier, standard
from tests.contract import verifier as suite
from tests.contract.verifier import CHECKS, SAMPLED_CHECKS
from tests.support.law import check_law, joint_counts, sampled, texts, toy

Check = Callable[[Verify], None]
LOSSLESS = [name for name, rule in VERIFIERS.items() if rule.is_lossless]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", LOSSLESS)
def test_a_lossless_rule_fulfils_the_contract(name: str, check: Check) -> None:
    check(load_verifier(name))


@pytest.mark.parametrize("check", SAMPLED_CHECKS)
@pytest.mark.parametrize("name", [name for name in LOSSLESS if VERIFIERS[name].takes_sampled_drafts])
def test_a_rule_for_sampled_drafts_keeps_the_law(name: str, check: Check) -> None:
    check(load_verifier(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSLESS)
def test_the_law_is_exact_to_a_million_draws(name: str) -> None:
    suite.check_exact_law(load_verifier(name), num_trials=100_000, lengths=(2, 3))
    if VERIFIERS[name].takes_sampled_drafts:
        suite.check_exact_law_of_sampled_drafts(load_verifier(name), num_trials=50_000, lengths=(1, 3))


# --- negative controls ------------------------------------------------------------------------


def accept_all(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    ends = np.cumsum([1 + length for length in draft.lengths]) - 1
    indices = [index + length for index, length in zip(rng.indices, draft.lengths, strict=True)]
    own = ops.draw(logits[ends.tolist()], sampling.temperatures, rng.seeds, indices, TARGET)
    return Verdict(draft.lengths, own.tolist())


def redraw_after_refusal(
    ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng
) -> Verdict:
    """Accepts with the right probability, then draws from p once more, the refused guess included."""
    verdict = load_verifier("standard")(ops, logits, draft, sampling, rng)
    firsts = np.cumsum([0, *(1 + length for length in draft.lengths[:-1])])
    ends = [int(first) + kept for first, kept in zip(firsts, verdict.accepted, strict=True)]
    indices = [index + kept for index, kept in zip(rng.indices, verdict.accepted, strict=True)]
    tokens = ops.draw(logits[ends], sampling.temperatures, rng.seeds, indices, RESIDUAL).tolist()
    return Verdict(verdict.accepted, tokens)


def trust_the_first_guess(
    ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng
) -> Verdict:
    verdict = load_verifier("standard")(ops, logits, draft, sampling, rng)
    kept = [max(n, min(1, length)) for n, length in zip(verdict.accepted, draft.lengths, strict=True)]
    return Verdict(kept, verdict.next_tokens)


def one_too_many(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    verdict = load_verifier("standard")(ops, logits, draft, sampling, rng)
    return Verdict([kept + 1 for kept in verdict.accepted], verdict.next_tokens)


def scribble(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    verdict = load_verifier("standard")(ops, logits, draft, sampling, rng)
    logits[0, 0] += 1.0
    return verdict


def by_place_in_batch(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    seeds = [seed + i for i, seed in enumerate(rng.seeds)]
    return load_verifier("standard")(ops, logits, draft, sampling, replace(rng, seeds=seeds))


def forgetful(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    verdict = load_verifier("standard")(ops, logits, draft, sampling, rng)
    rng.seeds[0] += 1
    return verdict


@pytest.mark.parametrize(
    ("check", "broken", "finding"),
    [
        (suite.check_exact_law, accept_all, "another law"),
        (suite.check_exact_law, redraw_after_refusal, "another law"),
        (suite.check_exact_law, trust_the_first_guess, "another law"),
        (suite.check_exact_law, greedy.verify, "another law"),
        (suite.check_same_text, accept_all, "change the text"),
        (suite.check_same_text, redraw_after_refusal, "change the text"),
        (suite.check_empty_draft, redraw_after_refusal, "not plain sampling"),
        (suite.check_empty_draft, greedy.verify, "not plain sampling"),
        (suite.check_bounds, one_too_many, "guesses accepted|outside"),
        (suite.check_bounds, accept_all, "outside the vocabulary"),
        (suite.check_purity, scribble, "a tensor was changed"),
        (suite.check_purity, forgetful, "a key was changed"),
        (suite.check_independence, by_place_in_batch, "neighbours"),
        (suite.check_exact_law_of_sampled_drafts, redraw_after_refusal, "another law"),
        (suite.check_exact_law_of_sampled_drafts, accept_all, "another law"),
    ],
)
def test_a_broken_rule_is_noticed(check: Check, broken: Verify, finding: str) -> None:
    with pytest.raises(AssertionError, match=finding):
        check(broken)


def test_a_q_that_was_not_sampled_from_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def flattened(*arguments: object) -> object:
        guess = sampled(*arguments)  # type: ignore[arg-type]

        def lie(*rest: object) -> Draft:
            draft = guess(*rest)  # type: ignore[arg-type]
            assert draft.q is not None
            return replace(draft, q=torch.full_like(draft.q, 1 / draft.q.shape[2]))

        return lie

    monkeypatch.setattr(suite, "sampled", lambda *a, **_: flattened(*a))
    with pytest.raises(AssertionError, match="another law"):
        suite.check_exact_law_of_sampled_drafts(standard.verify)


@pytest.mark.parametrize(("purpose", "is_biased"), [(DRAFT, False), (RESIDUAL, True)])
def test_noise_shared_between_draft_and_residual_is_noticed(purpose: int, is_biased: bool) -> None:
    """Same rule, same drafter, the drafter's noise being the residual's: biased, and the test sees it."""
    target = toy()
    guess = sampled(toy(seed=1), None, purpose)
    found = texts(suite.OPS, standard.verify, target, guess, k=2, horizon=3, seeds=range(20_000))
    if is_biased:
        with pytest.raises(AssertionError, match="another law"):
            check_law(joint_counts(found, 5), target.joint(3))
    else:
        check_law(joint_counts(found, 5), target.joint(3))
