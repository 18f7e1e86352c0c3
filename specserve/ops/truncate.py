"""min_p, top-k, top-p: logits outside the allowed set become -inf, in this order.

min_p   keeps ids at least min_p times as likely as the best one
top-k   keeps the k largest, and whatever ties with the k-th
top-p   keeps the shortest run of the most likely ids whose mass reaches top_p (Holtzman et al., 2020);
        of equally likely ids the lowest counts as the most likely, so exactly as many as needed stay; mass is
        that of ops/mass.py, so rounding decides alike everywhere
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specserve.ops.mass import masses
from specserve.ops.order import descending, heads, kth_largest
from specserve.ops.philox import Ids

Floats = NDArray[np.float32]


def reference(logits: Tensor, top_k: Sequence[int], top_p: Sequence[float], min_p: Sequence[float]) -> Tensor:
    """`logits` [R, V] float32, divided by temperature already, with -inf outside each row's allowed set.

    Works in place and returns its argument. Off: top_k 0 (or at least V), top_p 1, min_p 0. NaN counts as
    -inf. At least one id stays, and a row depends on nothing but itself.
    """
    host = logits.cpu()
    for row, k, p, m in zip(host.numpy(), top_k, top_p, min_p, strict=True):
        if 0 < k < len(row) or p < 1.0 or m > 0.0:
            _truncate(row, k, p, m)
    return logits if host is logits else logits.copy_(host)


def _truncate(row: Floats, top_k: int, top_p: float, min_p: float) -> None:
    best = row.max()
    if np.isnan(best):
        np.copyto(row, -np.inf, where=np.isnan(row))
        best = row.max()
    if not np.isfinite(best):
        return
    low = best + np.float32(math.log(min_p)) if min_p > 0.0 else np.float32(-np.inf)
    if 0 < top_k < len(row):
        low = max(low, kth_largest(row, top_k))
    ids = np.flatnonzero(row >= low) if low > -np.inf else None
    if top_p < 1.0:
        ids = _nucleus(row, top_p) if ids is None else ids[_nucleus(row[ids], top_p)]
    if ids is not None:
        kept = row[ids]
        row.fill(-np.inf)
        row[ids] = kept


def _nucleus(row: Floats, top_p: float) -> Ids:
    """Places of the most likely logits, as many as it takes for their mass to reach top_p.

    The masses are whole numbers added up from the most likely on, so how many are looked at changes nothing:
    sets of too little mass are not even sorted.
    """
    weights = masses(row, row.max())
    goal = max(1, math.ceil(top_p * int(weights.sum())))
    for ids in heads(row):
        if weights[ids].sum() >= goal:
            break
    ids = descending(row, ids)
    return ids[: np.searchsorted(np.cumsum(weights[ids]), goal) + 1]
