"""Equality: the text of plain sampling, whatever the guesses; sharing its noise keeps more of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specserve.types import Draft
from specserve.verify import coupled, standard
from tests.contract.verifier import calls
from tests.support.law import Toy, deterministic_guesses, probabilistic, sampled, texts, toy
from tests.support.law import coupled as coupled_guess
from tests.support.ops import fast_ops

OPS = fast_ops()
NEAR = Toy(toy().rows + toy(seed=9).rows * 0.3)


def test_deterministic_guesses_are_judged_as_standard_does() -> None:
    for call in calls():
        plain = (call[0], Draft(call[1].tokens), *call[2:])
        assert coupled.verify(OPS, *plain) == standard.verify(OPS, *plain)


def test_q_is_of_no_interest() -> None:
    for logits, draft, sampling, rng in calls():
        with_q = coupled.verify(OPS, logits, draft, sampling, rng)
        assert with_q == coupled.verify(OPS, logits, replace(draft, q=None), sampling, rng)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_coupled_guesses_leave_the_text_as_it_is(k: int) -> None:
    target, seeds = toy(), range(2_000)
    plain = texts(
        OPS, coupled.verify, target, deterministic_guesses(target)["best"], k=0, horizon=6, seeds=seeds
    )
    for law, ids in ((NEAR, None), (toy(seed=1), None), (toy(3, seed=5), [3, 1, 0]), (toy(7, seed=4), None)):
        guess = sampled(law, ids, coupled_guess)
        assert texts(OPS, coupled.verify, target, guess, k=k, horizon=6, seeds=seeds) == plain


def accepted(choose: object, law: Toy, num_runs: int = 4_000) -> float:
    """Mean number of three guesses that equality keeps."""
    counts: list[int] = []

    def watched(*call: object) -> object:
        verdict = coupled.verify(*call)  # type: ignore[arg-type]
        counts.extend(verdict.accepted)
        return verdict

    guess = sampled(law, None, choose)  # type: ignore[arg-type]
    texts(OPS, watched, toy(), guess, k=3, horizon=1, seeds=range(num_runs))  # type: ignore[arg-type]
    return sum(counts) / len(counts)


def test_sharing_noise_keeps_more_than_noise_of_ones_own() -> None:
    assert accepted(coupled_guess, NEAR) > 1.5 * accepted(probabilistic, NEAR)


def test_a_drafter_with_the_targets_own_law_is_always_right() -> None:
    assert accepted(coupled_guess, toy()) == 3.0
