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
        return _verify_sampled(ops, logits, draft, sampling, rng)
    return greedy.match(draft.tokens, _own_tokens(ops, logits, draft, sampling, rng))


def _own_tokens(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> list[int]:
    """The target's own token at every row, each drawn at its own index."""
    temperatures: list[float] = []
    seeds: list[int] = []
    indices: list[int] = []
    for i, tokens in enumerate(draft.tokens):
        num_rows = 1 + len(tokens)
        temperatures += [sampling.temperatures[i]] * num_rows
        seeds += [rng.seeds[i]] * num_rows
        indices += range(rng.indices[i], rng.indices[i] + num_rows)
    own: list[int] = ops.draw(logits, temperatures, seeds, indices, TARGET).tolist()
    return own


# --- sampled drafts ---------------------------------------------------------------------------


def _verify_sampled(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    accepted: list[int] = []
    last_rows: list[int] = []  # where each sequence's kept guesses end
    residuals: dict[int, Floats] = {}
    first = 0
    for i, tokens in enumerate(draft.tokens):
        rows = logits[first : first + 1 + len(tokens)]
        if sampling.temperatures[i] == 0.0:
            kept = greedy.verify(ops, rows, Draft([tokens]), sampling, rng).accepted[0]
        else:
            kept, residual = _accept(rows, draft, i, rng)
            if residual is not None:
                residuals[i] = residual
        accepted.append(kept)
        last_rows.append(first + kept)
        first += 1 + len(tokens)
    return Verdict(accepted, _next_tokens(ops, logits, last_rows, accepted, residuals, sampling, rng))


def _next_tokens(
    ops: Ops,
    logits: Tensor,
    last_rows: list[int],
    accepted: list[int],
    residuals: dict[int, Floats],
    sampling: SamplingRows,
    rng: RowRng,
) -> list[int]:
    """From the residual where a guess was refused by the p/q test, else the target's own token."""
    out = [0] * len(accepted)
    plain = [i for i in range(len(accepted)) if i not in residuals]
    sources: list[tuple[list[int], Tensor, int]] = []
    if plain:
        sources.append((plain, logits[torch.tensor([last_rows[i] for i in plain])], TARGET))
    if residuals:
        sources.append((list(residuals), torch.from_numpy(np.stack(list(residuals.values()))), RESIDUAL))
    for places, rows, purpose in sources:
        temperatures = [sampling.temperatures[i] for i in places]
        indices = [rng.indices[i] + accepted[i] for i in places]
        drawn = ops.draw(rows, temperatures, [rng.seeds[i] for i in places], indices, purpose)
        for i, token in zip(places, drawn.tolist(), strict=True):
            out[i] = token
    return out


def _accept(rows: Tensor, draft: Draft, i: int, rng: RowRng) -> tuple[int, Floats | None]:
    """How many of sequence i's guesses are kept, and log of the residual if the p/q test refused one.

    A guess that q cannot have drawn (outside a vocabulary, or q = 0) counts as none: the own token follows.
    """
    tokens = draft.tokens[i]
    positions = range(rng.indices[i], rng.indices[i] + len(tokens))
    u = uniforms([rng.seeds[i]] * len(tokens), positions, ACCEPT)
    for j, token in enumerate(tokens):
        q, q_ids = _draft_row(draft, i, j)
        column = np.flatnonzero(q_ids == token)
        if not 0 <= token < rows.shape[1] or not len(column) or q[column[0]] <= 0.0:
            return j, None
        p = _softmax(rows[j].cpu().numpy())
        if not p[token] > u[j] * q[column[0]]:
            return j, _log_residual(p, q, q_ids)
    return len(tokens), None


def _draft_row(draft: Draft, i: int, j: int) -> tuple[Floats, Ids]:
    """q [Vd] at guess j of sequence i, and the target ids of its columns."""
    assert draft.q is not None
    q = draft.q[i, j].cpu().numpy()
    return q, np.arange(len(q)) if draft.q_ids is None else draft.q_ids.cpu().numpy()


def _softmax(row: Floats) -> Floats:
    """Of one row, summed on its own: a row's bits must not depend on its neighbours. NaN counts as -inf."""
    row = np.nan_to_num(row, nan=-np.inf, posinf=_LARGEST, neginf=-np.inf)
    weights = np.exp(row - max(row.max(), -_LARGEST))
    total = weights.sum()
    p: Floats = weights / total if total > 0.0 else weights
    return p


def _log_residual(p: Floats, q: Floats, q_ids: Ids) -> Floats:
    """log max(p - q, 0) [V]; log p in the rounding accident that nothing of p exceeds q."""
    inside = q_ids < len(p)
    residual = p.copy()
    residual[q_ids[inside]] -= q[inside]
    if not (residual > 0.0).any():
        residual = p
    out = np.full_like(p, -np.inf)
    ids = np.flatnonzero(residual > 0.0)
    out[ids] = np.log(residual[ids])
    return out
