"""Acceptance at given rates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch

from specserve.draft.config_rules import synthetic_rates
from specserve.types import Draft, RowRng, SamplingRows, Verdict
from specserve.verify.synthetic import Options, conditional, verify
from tests.support.law import check_law, drawn_draft
from tests.support.ops import fast_ops

OPS = fast_ops()
V = 5
LOGITS = torch.randn(V, generator=torch.Generator().manual_seed(0))
Q = torch.full((V,), 1 / V)


def run(rates: Sequence[float], n: int, temperature: float, draft: Draft) -> Verdict:
    rule = partial(verify, Options(tuple(rates)))
    rows = LOGITS.repeat(n + sum(draft.lengths), 1)
    return rule(OPS, rows, draft, SamplingRows([temperature] * n), RowRng(list(range(n)), [7] * n))


def drafts(n: int, k: int, token: int = 2) -> list[list[int]]:
    return [[token] * k for _ in range(n)]


def test_rates_become_chances_one_after_the_other() -> None:
    assert conditional((0.9, 0.45, 0.0, 0.0)) == [0.9, 0.5, 0.0, 0.0]
    assert conditional(()) == []


@pytest.mark.parametrize(("temperature", "is_drawn"), [(0.0, False), (1.0, False), (1.0, True)])
@pytest.mark.parametrize("length", [1.0, 1.3, 2.5, 3.25, 4.0])
def test_the_mean_length_is_hit_within_one_percent(length: float, temperature: float, is_drawn: bool) -> None:
    """Kept guesses plus the token that follows; never more than one guess away from the mean."""
    n, k = 20_000, 3
    rates = synthetic_rates(length, k)
    draft = drawn_draft(drafts(n, k), Q.expand(n, k, V)) if is_drawn else Draft(drafts(n, k))
    accepted = np.array(run(rates, n, temperature, draft).accepted)
    assert abs(1 + accepted.mean() - length) <= 0.01 * length
    assert set(accepted) <= {int(length - 1), int(np.ceil(length - 1))}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rates", [(0.9, 0.5, 0.2), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (0.3, 0.3, 0.3)])
def test_each_position_has_its_rate(rates: tuple[float, ...], temperature: float) -> None:
    n = 8_000
    accepted = np.array(run(rates, n, temperature, Draft(drafts(n, 3))).accepted)
    law = -np.diff([1.0, *rates, 0.0])
    check_law(np.bincount(accepted, minlength=4), law)


def test_a_shorter_draft_meets_the_first_rates() -> None:
    n = 8_000
    accepted = np.array(run((0.8, 0.4, 0.1), n, 1.0, Draft(drafts(n, 1))).accepted)
    check_law(np.bincount(accepted, minlength=2), np.array([0.2, 0.8]))


def test_what_follows_a_refusal_is_what_the_target_would_have_said_instead() -> None:
    n = 8_000
    refused = run((0.0,), n, 1.0, Draft(drafts(n, 1)))
    without = LOGITS.double().softmax(0).numpy().copy()
    without[2] = 0.0
    check_law(np.bincount(refused.next_tokens, minlength=V), without)
    drawn = run((0.0,), n, 1.0, drawn_draft(drafts(n, 1), Q.expand(n, 1, V)))
    residual = np.maximum(LOGITS.double().softmax(0).numpy() - 1 / V, 0)
    check_law(np.bincount(drawn.next_tokens, minlength=V), residual)
    best = int(LOGITS.argmax())
    assert run((0.0,), 3, 0.0, Draft(drafts(3, 1, best))).next_tokens == [best] * 3


def test_a_kept_draft_is_followed_by_a_plain_token() -> None:
    n = 8_000
    verdict = run((1.0, 1.0), n, 1.0, Draft(drafts(n, 2)))
    assert verdict.accepted == [2] * n
    check_law(np.bincount(verdict.next_tokens, minlength=V), LOGITS.double().softmax(0).numpy())


@pytest.mark.parametrize("token", [-1, V, 2**40])
def test_an_id_outside_the_vocabulary_is_refused_at_any_rate(token: int) -> None:
    verdict = run((1.0, 1.0), 50, 1.0, Draft([[1, token]] * 50))
    assert verdict.accepted == [1] * 50
    assert all(0 <= following < V for following in verdict.next_tokens)


def test_the_only_possible_token_follows_its_own_refusal() -> None:
    rows = torch.full((2, V), -torch.inf)
    rows[:, 3] = 0.0
    rule = partial(verify, Options((0.0,)))
    assert rule(OPS, rows, Draft([[3]]), SamplingRows([1.0]), RowRng([1], [4])) == Verdict([0], [3])
