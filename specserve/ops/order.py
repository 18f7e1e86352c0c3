"""Largest first, without sorting a whole vocabulary. Ties: the lowest id comes first, everywhere.

What these return depends on the row alone, so a row's result never depends on its neighbours in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from specserve.ops.philox import Ids

Floats = NDArray[np.float32]

_DEPTHS = (5.0, 8.0, 11.0, 15.0)  # below the best logit: from 7e-3 to 3e-7 of its probability


def heads(row: Floats) -> Iterator[Ids]:
    """Ascending ids of the logits near the best one: growing sets, the last one of all finite logits.

    Every set is closed above: it holds all ids whose logit is at least as large as that of any member.
    `row` [V] has no NaN and its largest logit is finite.
    """
    best = row.max()
    for depth in _DEPTHS:
        yield np.flatnonzero(row >= best - np.float32(depth))
    yield np.flatnonzero(row > -np.inf)


def descending(row: Floats, ids: Ids) -> Ids:
    """`ids` (ascending) ordered by falling logit, ties by rising id."""
    return ids[np.argsort(-row[ids], kind="stable")]


def kth_largest(row: Floats, k: int) -> np.float32:
    """The k-th largest logit, ties counted one by one; -inf when fewer than k are finite."""
    for ids in heads(row):
        if len(ids) >= k:
            return np.float32(np.partition(row[ids], len(ids) - k)[len(ids) - k])
    return np.float32(-np.inf)
