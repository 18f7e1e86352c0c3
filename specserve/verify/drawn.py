"""Drafts that were drawn (`Draft.q`): what the rules for them have in common.

A rule for drawn drafts is a `Judge`: how many guesses of a block are kept, and what follows them. This module
finds p and q of the guesses, and draws what follows: the target's own token, or one from the residual
max(w p - q, 0), normalised. q is never spread over the target's vocabulary, and p becomes a whole row only
where a guess was refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import ACCEPT, RESIDUAL, TARGET, Ids, uniforms
from specserve.types import Draft, DraftProbs, RowRng, SamplingRows, Verdict
from specserve.verify import Verify

Floats = NDArray[np.float32]
Key = Callable[[int, int], int]  # (index of a block's first token, place in the block) -> index of a draw

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Block:
    """The guesses of one sequence that can have been drawn: those before the first one to which q gives
    nothing. That one, a filler for instance, counts as none, and so do all behind it."""

    rows: Floats  # [1 + k, V] final logits, on the host
    tokens: Sequence[int]
    log_p: Sequence[float]  # of each guess; -inf outside the target's vocabulary
    log_q: Sequence[float]  # finite
    u: Sequence[float]  # one number in (0, 1) for each guess
    probs: Floats  # [k, Vd]
    ids: Ids | None

    def p(self, j: int) -> Floats:
        """[V]: the target's probabilities where guess j stands."""
        return softmax(self.rows[j])

    def residual_mass(self, j: int, weight: float) -> float:
        """Sum over the target's ids of max(weight p(x) - q(x), 0) where guess j stands."""
        p = self.p(j)
        at, q = self._q(j)
        outside = weight * max(0.0, 1.0 - float(p[at].sum(dtype=np.float64)))
        return outside + float(np.maximum(np.float32(weight) * p[at] - q, 0).sum(dtype=np.float64))

    def log_residual(self, j: int, weight: float) -> Floats:
        """[V]: ln max(weight p - q, 0); ln p in the rounding accident that nothing is left."""
        p = self.p(j)
        at, q = self._q(j)
        residual = np.float32(weight) * p
        residual[at] = np.maximum(residual[at] - q, 0)
        with np.errstate(divide="ignore"):
            return np.log(residual if residual.any() else p)

    def _q(self, j: int) -> tuple[Ids | slice, Floats]:
        """Ids of the target that q knows, and q of each."""
        vocab_size = self.rows.shape[1]
        if self.ids is None:
            common = slice(min(vocab_size, self.probs.shape[1]))
            return common, self.probs[j, common]
        inside = self.ids < vocab_size
        return self.ids[inside], self.probs[j, inside]


def softmax(row: Floats) -> Floats:
    """Of one row [V], summed on its own: its bits must not depend on its neighbours. NaN counts as -inf."""
    best = row.max()
    if not np.isfinite(best):
        row = np.nan_to_num(row, nan=-np.inf, posinf=_LARGEST, neginf=-np.inf)
        best = max(row.max(), np.float32(-_LARGEST))
    weights = np.exp(row - best)
    total = weights.sum()
    p: Floats = weights / total if total > 0.0 else weights
    return p


@dataclass(frozen=True, slots=True)
class Judgement:
    """`kept` guesses, then the target's own token; with a `weight` one from the residual of that weight."""

    kept: int
    weight: float | None = None


Judge = Callable[[Block], Judgement]


def by_token(first: int, place: int) -> int:
    """`Key` of rules whose decision on a guess does not depend on what is behind it."""
    return first + place


def verify(
    ops: Ops,
    logits: Tensor,
    draft: Draft,
    sampling: SamplingRows,
    rng: RowRng,
    *,
    plain: Verify,
    judge: Judge,
    key: Key = by_token,
) -> Verdict:
    """`judge` decides where guesses were drawn, `plain` elsewhere; greedy sequences are `plain`'s always."""
    is_drawn = [
        q is not None and temperature > 0.0 and len(tokens) > 0
        for q, temperature, tokens in zip(
            draft.q or [None] * len(draft.tokens), sampling.temperatures, draft.tokens, strict=True
        )
    ]
    if not any(is_drawn):
        return plain(ops, logits, draft, sampling, rng)
    if all(is_drawn):
        return _verify_drawn(ops, logits, draft, sampling, rng, judge, key)
    accepted, next_tokens = [0] * len(is_drawn), [0] * len(is_drawn)
    for wanted in (True, False):
        places = [i for i, is_one in enumerate(is_drawn) if is_one is wanted]
        part = _part(logits, draft, sampling, rng, places)
        verdict = _verify_drawn(ops, *part, judge, key) if wanted else plain(ops, *part)
        for i, kept, following in zip(places, verdict.accepted, verdict.next_tokens, strict=True):
            accepted[i], next_tokens[i] = kept, following
    return Verdict(accepted, next_tokens)


def _part(
    logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng, places: list[int]
) -> tuple[Tensor, Draft, SamplingRows, RowRng]:
    """The sequences at `places` alone."""
    firsts = first_rows(draft)
    rows = [row for i in places for row in range(firsts[i], firsts[i + 1])]
    part = Draft([draft.tokens[i] for i in places], None if draft.q is None else [draft.q[i] for i in places])
    keys = RowRng([rng.seeds[i] for i in places], [rng.indices[i] for i in places])
    return logits[rows], part, SamplingRows([sampling.temperatures[i] for i in places]), keys


def first_rows(draft: Draft) -> list[int]:
    """[n + 1]: sequence i owns the rows from entry i up to entry i + 1."""
    return [0, *accumulate(1 + length for length in draft.lengths)]


def _verify_drawn(
    ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng, judge: Judge, key: Key
) -> Verdict:
    """Decides on the host, one sequence after the other."""
    firsts = first_rows(draft)
    blocks = _blocks(ops, logits, draft, rng, firsts, key)
    judgements = [judge(block) for block in blocks]
    next_tokens = [0] * len(blocks)
    own = [i for i, judgement in enumerate(judgements) if judgement.weight is None]
    refused = [i for i, judgement in enumerate(judgements) if judgement.weight is not None]
    if own:
        rows = logits[[firsts[i] + judgements[i].kept for i in own]]
        indices = [rng.indices[i] + judgements[i].kept for i in own]
        _draw(ops, rows, own, indices, TARGET, sampling, rng, next_tokens)
    if refused:
        residuals = [blocks[i].log_residual(judgements[i].kept, judgements[i].weight or 0.0) for i in refused]
        indices = [key(rng.indices[i], judgements[i].kept) for i in refused]
        rows = torch.from_numpy(np.stack(residuals))
        _draw(ops, rows, refused, indices, RESIDUAL, sampling, rng, next_tokens)
    return Verdict([judgement.kept for judgement in judgements], next_tokens)


def _draw(
    ops: Ops,
    rows: Tensor,
    places: list[int],
    indices: list[int],
    purpose: int,
    sampling: SamplingRows,
    rng: RowRng,
    next_tokens: list[int],
) -> None:
    """One token from each row into its place of `next_tokens`."""
    temperatures, seeds = [sampling.temperatures[i] for i in places], [rng.seeds[i] for i in places]
    tokens = ops.draw(rows, temperatures, seeds, indices, purpose).tolist()
    for i, token in zip(places, tokens, strict=True):
        next_tokens[i] = token


def _blocks(ops: Ops, logits: Tensor, draft: Draft, rng: RowRng, firsts: list[int], key: Key) -> list[Block]:
    vocab_size = logits.shape[1]
    ids = [
        token if 0 <= token < vocab_size else 0 for tokens in draft.tokens for token in (*tokens, 0)
    ]  # a row for each, that behind the last guess included
    log_p = ops.logprobs(logits, ids, 0)[0].tolist()
    u = uniform_numbers(draft, rng, key)
    host = logits.cpu().numpy()
    blocks = []
    for i, tokens in enumerate(draft.tokens):
        first = firsts[i]
        probs, columns = _on_host((draft.q or [])[i])
        log_q = _log_q(tokens, probs, columns)
        length = len(log_q)
        own_log_p = [
            log_p[first + j] if 0 <= token < vocab_size else -math.inf
            for j, token in enumerate(tokens[:length])
        ]
        rows = host[first : firsts[i + 1]]
        own_u = u[first - i : first - i + length]
        blocks.append(Block(rows, tokens[:length], own_log_p, log_q, own_u, probs, columns))
    return blocks


def uniform_numbers(draft: Draft, rng: RowRng, key: Key = by_token) -> list[float]:
    """u for each guess, those of all sequences after one another."""
    seeds: list[int] = []
    indices: list[int] = []
    for seed, index, length in zip(rng.seeds, rng.indices, draft.lengths, strict=True):
        seeds += [seed] * length
        indices += [key(index, place) for place in range(length)]
    u: list[float] = uniforms(seeds, indices, ACCEPT).tolist()
    return u


def _on_host(q: DraftProbs | None) -> tuple[Floats, Ids | None]:
    assert q is not None  # drawn sequences have it
    return q.probs.cpu().numpy(), None if q.ids is None else q.ids.cpu().numpy()


def _log_q(tokens: Sequence[int], probs: Floats, ids: Ids | None) -> list[float]:
    """ln q of the guesses, up to the first that cannot have been drawn."""
    found: list[float] = []
    for token, q in zip(tokens, probs, strict=False):
        column = token if ids is None else _column(ids, token)
        if not 0 <= column < len(q) or not q[column] > 0.0:
            break
        found.append(math.log(q[column]))
    return found


def _column(ids: Ids, token: int) -> int:
    found = np.flatnonzero(ids == token)
    return int(found[0]) if len(found) else -1
