"""The verifier suite over all rules, and over broken ones that must not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from torch import Tensor

from specserve.ops import Ops
from specserve.types import Draft, RowRng, SamplingRows, Verdict
from specserve.verify import VERIFIERS, Verify, fly, greedy, load_verifier, synthetic
from tests.contract import verifier as suite
from tests.contract.verifier import CHECKS, SAMPLED_CHECKS, SHAPE_CHECKS
from tests.support.broken import accept_all, redraw_after_refusal, trust_the_first_guess

Check = Callable[[Verify], None]
LOSSLESS = [name for name, rule in VERIFIERS.items() if rule.is_lossless]
LOSSY: dict[str, Verify] = {
    "synthetic": partial(synthetic.verify, synthetic.Options((0.9, 0.6, 0.3, 0.3, 0.1))),
    "fly": partial(fly.verify, fly.Options(1, 0.3, 3)),
}


def test_every_rule_is_here() -> None:
    assert {*LOSSLESS, *LOSSY} == {*VERIFIERS}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", LOSSLESS)
def test_a_lossless_rule_fulfils_the_contract(name: str, check: Check) -> None:
    check(load_verifier(name))


@pytest.mark.parametrize("check", SAMPLED_CHECKS)
@pytest.mark.parametrize("name", [name for name in LOSSLESS if VERIFIERS[name].takes_sampled_drafts])
def test_a_rule_for_sampled_drafts_keeps_the_law(name: str, check: Check) -> None:
    check(load_verifier(name))


@pytest.mark.parametrize("check", SHAPE_CHECKS)
@pytest.mark.parametrize("name", LOSSY)
def test_a_lossy_rule_keeps_the_forms(name: str, check: Check) -> None:
    check(LOSSY[name])


@pytest.mark.parametrize("name", LOSSY)
def test_a_lossy_rule_without_drafts_is_plain_sampling(name: str) -> None:
    suite.check_empty_draft(LOSSY[name])


@pytest.mark.parametrize("name", LOSSY)
def test_a_lossy_rule_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError, match="another law"):
        suite.check_exact_law(LOSSY[name])


# --- negative controls ------------------------------------------------------------------------


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
