"""Lossless verification, token by token (Leviathan et al., 2023; Chen et al., 2023).

Deterministic drafts (`Draft.q` None): the target's own token at each index is drawn from the request's seed,
and a guess is kept when it is that token. It is kept with probability p(guess), and given that it is not, the
own token has the law of p without the guess: acceptance test and residual of the papers for a one-hot q, with
the text equal to plain sampling for that seed. An empty draft is plain sampling.

Sampled drafts: guess x ~ q is kept iff p(x) > u q(x); the first one refused is replaced by a draw from
max(p - q, 0), normalised. Uniform, residual, draft and own token have noise of their own (`ops.philox`):
noise shared between them biases the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import ACCEPT, RESIDUAL, TARGET, Ids, uniforms
from specserve.types import Draft, RowRng, SamplingRows, Verdict
from specserve.verify import greedy

Floats = NDArray[np.float32]

_LARGEST = float(np.finfo(np.float32).max)


def verify(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    """`specserve.verify.Verify`; greedy where the temperature is 0."""
    if draft.q is not None and any(sampling.temperatures):
        return _verify_sampled(ops, logits, draft, draft.q, sampling, rng)
    keys = sampling.temperatures, rng.seeds, rng.indices
    return Verdict(*ops.accept(logits, draft.tokens, *keys, TARGET))


# --- sampled drafts ---------------------------------------------------------------------------


def _verify_sampled(
    ops: Ops, logits: Tensor, draft: Draft, q: Tensor, sampling: SamplingRows, rng: RowRng
) -> Verdict:
    """Decides on the host, one sequence at a time, and looks at no row behind a refusal."""
    lengths = draft.lengths
    firsts = [0, *accumulate(1 + length for length in lengths)]
    host, q_host = logits.cpu().numpy(), q.cpu().numpy()
    q_ids = np.arange(q_host.shape[2]) if draft.q_ids is None else draft.q_ids.cpu().numpy()
    u = _uniforms(lengths, rng)
    accepted: list[int] = []
    residuals: dict[int, Floats] = {}
    for i, tokens in enumerate(draft.tokens):
        rows = slice(firsts[i], firsts[i + 1])
        if sampling.temperatures[i] == 0.0:
            kept = greedy.verify(ops, logits[rows], Draft([tokens]), sampling, rng).accepted[0]
        else:
            kept, residual = _accept(host[rows], tokens, q_host[i], q_ids, u[firsts[i] - i :])
            if residual is not None:
                residuals[i] = residual
        accepted.append(kept)
    ends = [first + kept for first, kept in zip(firsts, accepted, strict=False)]
    indices = [index + kept for index, kept in zip(rng.indices, accepted, strict=True)]
    ending = RowRng(rng.seeds, indices)
    return Verdict(accepted, _next_tokens(ops, logits, ends, residuals, sampling, ending))


def _uniforms(lengths: Sequence[int], rng: RowRng) -> NDArray[np.float64]:
    """One number for each guess, those of all sequences after one another."""
    seeds: list[int] = []
    indices: list[int] = []
    for seed, index, length in zip(rng.seeds, rng.indices, lengths, strict=True):
        seeds += [seed] * length
        indices += range(index, index + length)
    return uniforms(seeds, indices, ACCEPT)


def _accept(
    rows: Floats, tokens: Sequence[int], q: Floats, q_ids: Ids, u: NDArray[np.float64]
) -> tuple[int, Floats | None]:
    """How many guesses are kept, and log of the residual [V] if the p/q test refused one.

    `rows` [1 + k, V] logits, `q` [>= k, Vd] with target ids `q_ids` [Vd]. A guess that q cannot have drawn
    (outside a vocabulary, or q = 0) counts as none: the own token follows.
    """
    for j, token in enumerate(tokens):
        column = np.flatnonzero(q_ids == token)
        if not 0 <= token < rows.shape[1] or not len(column) or q[j, column[0]] <= 0.0:
            return j, None
        p = _softmax(rows[j])
        if not p[token] > u[j] * q[j, column[0]]:
            return j, _log_residual(p, q[j], q_ids)
    return len(tokens), None


def _softmax(row: Floats) -> Floats:
    """Of one row [V], summed on its own: its bits must not depend on its neighbours. NaN counts as -inf."""
    best = row.max()
    if not np.isfinite(best):
        row = np.nan_to_num(row, nan=-np.inf, posinf=_LARGEST, neginf=-np.inf)
        best = max(row.max(), np.float32(-_LARGEST))
    weights = np.exp(row - best)
    total = weights.sum()
    p: Floats = weights / total if total > 0.0 else weights
    return p


def _log_residual(p: Floats, q: Floats, q_ids: Ids) -> Floats:
    """log max(p - q, 0); log p in the rounding accident that nothing of p exceeds q."""
    inside = q_ids < len(p)
    residual = p.copy()
    residual[q_ids[inside]] -= q[inside]
    if not (residual > 0.0).any():
        residual = p
    out = np.full_like(p, -np.inf)
    ids = np.flatnonzero(residual > 0.0)
    out[ids] = np.log(residual[ids])
    return out


def _next_tokens(
    ops: Ops,
    logits: Tensor,
    ends: list[int],
    residuals: dict[int, Floats],
    sampling: SamplingRows,
    rng: RowRng,
) -> list[int]:
    """Where a guess was refused by the p/q test, from its residual; else the target's own token of row
    `ends[i]`. `rng` has the indices of these tokens."""
    out = [0] * len(ends)
    plain = [i for i in range(len(ends)) if i not in residuals]
    sources: list[tuple[list[int], Tensor, int]] = []
    if plain:
        sources.append((plain, logits[[ends[i] for i in plain]], TARGET))
    if residuals:
        sources.append((list(residuals), torch.from_numpy(np.stack(list(residuals.values()))), RESIDUAL))
    for places, rows, purpose in sources:
        temperatures, seeds, indices = (
            [column[i] for i in places] for column in (sampling.temperatures, rng.seeds, rng.indices)
        )
        tokens = ops.draw(rows, temperatures, seeds, indices, purpose).tolist()
        for i, token in zip(places, tokens, strict=True):
            out[i] = token
    return out
