"""The largest logits, found without a full sort, in an order that ties cannot disturb."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specserve.ops.order import descending, heads, kth_largest

LOGITS = st.lists(
    st.one_of(st.integers(-40, 10).map(lambda n: n / 2), st.just(-np.inf)), min_size=1, max_size=30
).filter(lambda values: max(values) > -np.inf)


@settings(deadline=None)
@given(LOGITS)
def test_heads_grow_to_all_finite_ids_and_are_closed_above(values: list[float]) -> None:
    row = np.array(values, np.float32)
    sizes = []
    for ids in heads(row):
        assert ids.tolist() == np.flatnonzero(row >= row[ids].min()).tolist()
        sizes.append(len(ids))
    assert sizes == sorted(sizes)
    assert sizes[0] >= 1
    assert sizes[-1] == np.isfinite(row).sum()


@settings(deadline=None)
@given(LOGITS)
def test_descending_is_by_logit_then_by_id(values: list[float]) -> None:
    row = np.array(values, np.float32)
    ids = np.flatnonzero(row > -np.inf)
    assert descending(row, ids).tolist() == sorted(ids.tolist(), key=lambda i: (-row[i], i))


@settings(deadline=None)
@given(LOGITS, st.integers(1, 35))
def test_kth_largest_counts_ties_one_by_one(values: list[float], k: int) -> None:
    row = np.array(values, np.float32)
    ordered = sorted(values, reverse=True)
    assert kth_largest(row, k) == (ordered[k - 1] if k <= len(ordered) else -np.inf)


@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 30.0])
def test_any_spread_of_a_large_vocabulary(spread: float) -> None:
    row = (np.random.default_rng(0).standard_normal(20_000) * spread).astype(np.float32)
    for k in (1, 50, 19_999, 20_000):
        assert kth_largest(row, k) == np.sort(row)[-k]
