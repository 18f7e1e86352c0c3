"""min_p, top-k and top-p against the definition by full sort; ties, order, and independence of the batch."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specserve.ops import truncate


def allowed(row: Tensor, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> list[int]:
    found = truncate.reference(row.clone()[None], [top_k], [top_p], [min_p])[0]
    ids = found > -torch.inf
    assert torch.equal(found[ids], row[ids]), "a kept logit changed"
    return ids.nonzero()[:, 0].tolist()


def by_definition(row: Tensor, top_k: int, top_p: float, min_p: float) -> list[int]:
    """Sort ascending (equal ones: the higher id first); mask below the k-th largest; mask what the ascending
    cumulated mass 1 - top_p covers, never the last."""
    row = row.clone()
    if min_p:
        row[row < row.max() + float(np.float32(np.log(min_p)))] = -torch.inf
    if 0 < top_k < len(row):
        row[row < row.sort(descending=True).values[top_k - 1]] = -torch.inf
    order = sorted(range(len(row)), key=lambda i: (float(row[i]), -i))
    if top_p < 1.0:
        masses = row.double().softmax(0)[order].cumsum(0)
        row[
            [token for token, mass in zip(order[:-1], masses, strict=False) if mass <= 1 - top_p]
        ] = -torch.inf
    return (row > -torch.inf).nonzero()[:, 0].tolist()


def random_rows(num_rows: int = 8, vocab_size: int = 3000) -> Tensor:
    scales = torch.tensor([0.0, 0.01, 0.3, 1.0, 2.0, 3.0, 5.0, 20.0])[:num_rows, None]
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(1)) * scales


@pytest.mark.parametrize("top_k", [0, 1, 5, 40, 2999, 3000, 4000])
@pytest.mark.parametrize("top_p", [1.0, 0.99, 0.95, 0.5, 0.01])
@pytest.mark.parametrize("min_p", [0.0, 0.03, 1.0])
def test_the_allowed_set_is_the_defined_one(top_k: int, top_p: float, min_p: float) -> None:
    for row in random_rows():
        expected = by_definition(row, top_k, top_p, min_p)
        found = allowed(row, top_k, top_p, min_p)
        # Sums of thousands of nearly equal masses round differently: one id more or less at the border.
        assert len(set(found) ^ set(expected)) <= (1 if len(expected) > 1000 else 0)


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=12),
    st.integers(0, 13),
    st.integers(1, 40).map(lambda n: n / 40),
)
def test_small_rows_with_ties_keep_exactly_the_shortest_run(
    weights: list[int], top_k: int, top_p: float
) -> None:
    """In whole numbers: masses are weights, so nothing can round. Borders hit exactly are left out."""
    row = torch.tensor(weights, dtype=torch.float64).log().float()
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    if 0 < top_k < len(order):
        order = [i for i in order if weights[i] >= weights[order[top_k - 1]]]
    total, mass, kept = sum(weights[i] for i in order), 0, []
    for i in order:
        share = Fraction(mass, total)
        if share != 0 and abs(share - Fraction(top_p)) < 1e-6:
            return
        if mass and share > top_p:
            break
        kept.append(i)
        mass += weights[i]
    assert allowed(row, top_k, top_p) == sorted(kept)


def test_top_k_keeps_ties_at_its_threshold() -> None:
    assert allowed(torch.tensor([1.0, 3.0, 2.0, 2.0, 2.0, 0.0]), top_k=2) == [1, 2, 3, 4]
    assert allowed(torch.tensor([5.0, 5.0, 5.0]), top_k=1) == [0, 1, 2]


def test_top_p_prefers_the_lowest_of_equal_ids() -> None:
    assert allowed(torch.zeros(10), top_p=0.35) == [0, 1, 2, 3]
    assert allowed(torch.tensor([0.0, 1.0, 1.0, 1.0, 0.0]), top_p=0.5) == [1, 2]


def test_top_p_counts_mass_after_top_k() -> None:
    row = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    assert allowed(row, top_p=0.8) == [0, 1, 2]
    assert allowed(row, top_k=3, top_p=0.7) == [0, 1]  # of 0.9


def test_min_p_is_relative_to_the_best_and_comes_first() -> None:
    row = torch.tensor([0.5, 0.26, 0.24]).log()
    assert allowed(row, min_p=0.5) == [0, 1]
    assert allowed(row, min_p=0.5, top_p=0.65) == [0]  # 0.5 of 0.76 is more than 0.65


def test_the_best_id_always_stays() -> None:
    row = torch.tensor([-torch.inf, 2.0, 2.0, torch.nan, 1.0])
    assert allowed(row, top_p=1e-9) == [1]
    assert allowed(row, min_p=1.0, top_k=1, top_p=1e-9) == [1]


def test_impossible_ids_stay_impossible() -> None:
    row = torch.tensor([-torch.inf, 2.0, -torch.inf, 1.0])
    for parameters in ((3, 1.0, 0.0), (0, 0.999999, 0.0), (0, 1.0, 1e-30), (3, 0.999999, 1e-30)):
        assert allowed(row, *parameters) == [1, 3]


@pytest.mark.parametrize("value", [torch.nan, -torch.inf, torch.inf])
def test_a_row_without_finite_logits_does_no_harm(value: float) -> None:
    found = truncate.reference(torch.full((1, 6), value), [2], [0.5], [0.1])
    assert not found.isnan().any()
    assert (found == (torch.inf if value == torch.inf else -torch.inf)).all()


def test_rows_that_ask_for_nothing_are_untouched() -> None:
    logits = random_rows()
    logits[0, 0] = torch.nan
    found = truncate.reference(logits.clone(), [0, 3000] * 4, [1.0] * 8, [0.0] * 8)
    assert torch.equal(found.view(torch.int32), logits.view(torch.int32))


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    logits = random_rows()
    top_k, top_p, min_p = (
        [0, 50, 0, 7, 0, 0, 20, 0],
        [0.9, 1.0, 0.95, 0.8, 0.5, 1.0, 0.99, 0.3],
        [0.0] * 5 + [0.1] * 3,
    )
    together = truncate.reference(logits.clone(), top_k, top_p, min_p)
    for r in range(8):
        alone = truncate.reference(logits[r : r + 1].clone(), [top_k[r]], [top_p[r]], [min_p[r]])
        assert torch.equal(alone[0], together[r])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator")
def test_another_device_keeps_the_same_ids() -> None:
    there = random_rows().to(torch.accelerator.current_accelerator())
    here = truncate.reference(random_rows(), [50] * 8, [0.9] * 8, [0.01] * 8)
    assert torch.equal(truncate.reference(there, [50] * 8, [0.9] * 8, [0.01] * 8).cpu(), here)
