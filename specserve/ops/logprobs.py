"""Log-probabilities of given tokens and of the best ones of each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specserve.ops.mass import log_total
from specserve.ops.order import descending, kth_largest
from specserve.ops.philox import Ids

Floats = NDArray[np.float32]


def reference(logits: Tensor, ids: Sequence[int], num_top: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of `logits` [R, V] float32 and one id per row: (values [R], ranks [R, 1 + t], top_values [R, t],
    top_ids [R, t]) on the host, with t = min(num_top, V).

    Values are log_softmax, float32. A rank is the number of ids at least as likely, so ties share the worse
    rank; column 0 is the given id's, the others those of the top ids. Top ids fall by value, ties rise by id.
    NaN counts as -inf. A row depends on nothing but itself, and not on who adds it up (ops/mass.py).
    """
    host = logits.cpu().numpy()
    t = min(num_top, host.shape[1])
    values = np.empty((len(host), 1 + t), np.float32)
    ranks = np.empty((len(host), 1 + t), np.int64)
    top_ids = np.empty((len(host), t), np.int64)
    for r, row in enumerate(host):
        _row(row, ids[r], values[r], ranks[r], top_ids[r])
    found = torch.from_numpy(values)
    return found[:, 0], torch.from_numpy(ranks), found[:, 1:], torch.from_numpy(top_ids)


def _row(row: Floats, token: int, values: Floats, ranks: Ids, top_ids: Ids) -> None:
    best = row.max()
    if np.isnan(best):
        row = np.where(np.isnan(row), np.float32(-np.inf), row)
        best = row.max()
    if not np.isfinite(best):  # nothing but -inf, or +inf among them: the best ids are equally likely
        row = np.where(row == best, np.float32(0), np.float32(-np.inf))
        best = np.float32(0)
    total = log_total(row, best)
    values[0] = float(row[token]) - total
    ranks[0] = np.count_nonzero(row >= row[token])
    if len(top_ids):
        order = descending(row, np.flatnonzero(row >= kth_largest(row, len(top_ids))))
        top_ids[:] = order[: len(top_ids)]
        values[1:] = row[top_ids].astype(np.float64) - total
        ranks[1:] = np.searchsorted(-row[order], -row[top_ids], side="right")
