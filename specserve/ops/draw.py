"""The draw: argmax of logits + Gumbel noise, whose law is exactly softmax(logits) (the Gumbel-max trick).

The noise of (seed, index, token id) is a pure function with one value on every machine, for any batch, thread
count or place in a vector: it is made from a hash and exactly rounded operations, never from a library's
logarithm. A second implementation must follow `gumbel` operation by operation, without fused multiply-add.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specserve.ops.philox import Ids, Words, row_words, words

Floats = NDArray[np.float32]

MAX_W = np.float32(1 - 2.0**-24)  # the largest float32 below 1: ln(1 - w) stays finite
_SQRT_HALF_BITS = np.float32(0.5**0.5).view(np.int32)
_LN2_HIGH = np.float32(355 / 512)  # nine bits, so that its product with an exponent is exact
_LN2_LOW = np.float32(0.6931471805599453 - 355 / 512)
_SERIES = [np.float32(2 / n) for n in (9, 7, 5, 3, 1)]

# A row with more finite logits than this is hashed as a whole, four ids at a time. Never changes a result.
_DENSE = 4096


def gumbel(hashed: Words) -> Floats:
    """-ln(-ln(1 - w)) of w = (r + 1/2) 2^-32 for 32-bit words r: finite, between -2.9 and 22.9.

    Small w decide who wins, so they keep their relative precision: 1 - w is formed only where w is large.
    """
    w = np.minimum(((hashed + 0.5) * 2.0**-32).astype(np.float32), MAX_W)
    e, m = _split(np.float32(1) - w)
    exponential = -_log(e, np.where(e == 0, -w, m - np.float32(1)))
    e, m = _split(exponential)
    return -_log(e, m - np.float32(1))


def _split(x: Floats) -> tuple[Floats, Floats]:
    """e, m with x = 2^e m and sqrt(1/2) <= m < sqrt(2), for normal positive x."""
    bits = x.view(np.int32)
    exponent = (bits - _SQRT_HALF_BITS) >> 23
    return exponent.astype(np.float32), (bits - (exponent << 23)).view(np.float32)


def _log(e: Floats, f: Floats) -> Floats:
    """ln(2^e (1 + f)) = e ln 2 + 2 artanh(s) with s = f / (2 + f), |s| < 0.172: the series up to s^9."""
    s = f / (f + np.float32(2))
    z = s * s
    series = _SERIES[0] * z
    for coefficient in _SERIES[1:-1]:
        series = (series + coefficient) * z
    return e * _LN2_HIGH + (e * _LN2_LOW + (series + _SERIES[-1]) * s)


def reference(
    logits: Tensor,
    temperatures: Sequence[float],
    seeds: Sequence[int],
    indices: Sequence[int],
    purpose: int,
) -> Tensor:
    """[R] int64, one token id per row of `logits` [R, V] float32, on its device.

    Temperature 0 takes the best id; any other draws with the noise of (seed, index, id, purpose), the logits
    being final already. NaN counts as -inf, ties go to the lowest id, and a row without any finite logit
    gives id 0: an id is always inside the vocabulary.
    """
    random = [row for row, temperature in enumerate(temperatures) if temperature > 0.0]
    if logits.device.type != "cpu" and not random:
        return torch.where(logits.isnan(), -torch.inf, logits).argmax(1)
    rows = logits.cpu().numpy()
    tokens, best = _best(rows)
    random = [row for row in random if np.isfinite(best[row])]
    if random:
        tokens[random] = _draw(rows, tokens, random, seeds, indices, purpose)
    return torch.from_numpy(tokens).to(logits.device)


def _best(rows: Floats) -> tuple[Ids, Floats]:
    """Id and value of each row's largest logit. NumPy's argmax is ten times faster than PyTorch's here."""
    tokens = rows.argmax(axis=1)
    best = rows[np.arange(len(rows)), tokens]
    for row in np.flatnonzero(np.isnan(best)):
        clean = np.where(np.isnan(rows[row]), -np.inf, rows[row])
        tokens[row] = clean.argmax()
        best[row] = clean[tokens[row]]
    return tokens, best


def _draw(
    rows: Floats, best: Ids, random: list[int], seeds: Sequence[int], indices: Sequence[int], purpose: int
) -> Ids:
    """The tokens of the rows in `random`, each of which has a finite best logit."""
    numbers = np.array(random)
    out = np.empty(len(random), np.int64)
    owners, ids, dense = _finite(rows, numbers)
    if len(owners):
        own_seeds = np.array([seeds[row] for row in random], np.uint64)[owners]
        own_indices = np.array([indices[row] for row in random], np.uint64)[owners]
        noise = gumbel(words(own_seeds, own_indices, ids, purpose))
        _take_best(owners, ids, rows[numbers[owners], ids] + noise, out)
    for place in dense:
        row = random[place]
        hashed = row_words(seeds[row], indices[row], rows.shape[1], purpose)
        out[place] = _argmax_dense(rows[row], int(best[row]), hashed)
    return out


def _finite(rows: Floats, numbers: Ids) -> tuple[Ids, Ids, list[int]]:
    """(owners, ids) of the finite logits, by place in `numbers`; and the places of rows that have many."""
    if rows.shape[1] <= _DENSE:
        owners, ids = np.nonzero(rows[numbers] > -np.inf)
        return owners, ids, []
    found = [np.flatnonzero(rows[row] > -np.inf) for row in numbers]
    dense = [place for place, ids in enumerate(found) if len(ids) > _DENSE]
    sparse = [np.empty(0, np.int64) if len(ids) > _DENSE else ids for ids in found]
    return np.repeat(np.arange(len(found)), [len(ids) for ids in sparse]), np.concatenate(sparse), dense


def _take_best(owners: Ids, ids: Ids, scores: Floats, out: Ids) -> None:
    """out[o] = the first id with the best score among those of owner o; owners and their ids ascend."""
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    lengths = np.diff(starts, append=len(owners))
    is_best = scores == np.repeat(np.maximum.reduceat(scores, starts), lengths)
    winners = np.flatnonzero(is_best)[::-1]
    out[owners[winners]] = ids[winners]  # of repeated owners the last one stays: the lowest id


def _argmax_dense(row: Floats, best: int, hashed: Words) -> int:
    """argmax of row + noise [V], the noise being computed only where it can matter.

    -ln(1 - w) >= w, so the noise is at most -ln w, and an id reaches a score only if w <= exp(logit - score).
    The score to reach is that of the best logit; the slack covers the rounding of sums and of exp.
    """
    score = row[best] + gumbel(hashed[best : best + 1])[0]
    low = score - np.float32(1e-3) - np.abs(score) * np.float32(2.0**-20)
    limits = np.exp(np.minimum(row - low, np.float32(0))) * np.float32(2.0**32)
    ids = np.flatnonzero(hashed <= limits)
    return int(ids[(row[ids] + gumbel(hashed[ids])).argmax()])
