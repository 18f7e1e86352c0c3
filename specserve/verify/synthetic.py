"""Acceptance at given rates, whatever the target says: for benchmarks.

Lossy: the text means nothing. A guess outside the target's vocabulary is refused at any rate. What follows a
refusal is what follows one elsewhere: the best token, a draw from the residual, or from p without the guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import TARGET
from specserve.types import Draft, RowRng, SamplingRows, Verdict
from specserve.verify import drawn
from specserve.verify.drawn import Block, Judgement


@dataclass(frozen=True, slots=True)
class Options:
    """`synthetic_acceptance_rates[i]` is the probability that the first i + 1 guesses are all kept."""

    synthetic_acceptance_rates: tuple[float, ...]


def verify(
    options: Options, ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng
) -> Verdict:
    """`specserve.verify.Verify`, its options bound."""
    chances = conditional(options.synthetic_acceptance_rates)

    def judge(block: Block) -> Judgement:
        kept = _kept(block.tokens, block.u, chances, block.rows.shape[1])
        return Judgement(kept, 1.0 if kept < len(block.tokens) else None)

    def plain(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
        return _verify_plain(ops, logits, draft, sampling, rng, chances)

    return drawn.verify(ops, logits, draft, sampling, rng, plain=plain, judge=judge)


def conditional(rates: Sequence[float]) -> list[float]:
    """The probability that guess i is kept, given that those before it are: r_i / r_{i-1}."""
    return [rate / before if before else 0.0 for before, rate in pairwise((1.0, *rates))]


def _kept(tokens: Sequence[int], u: Sequence[float], chances: Sequence[float], vocab_size: int) -> int:
    kept = 0
    for token, number, chance in zip(tokens, u, chances, strict=False):
        if number >= chance or not 0 <= token < vocab_size:
            break
        kept += 1
    return kept


def _verify_plain(
    ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng, chances: Sequence[float]
) -> Verdict:
    """Guesses that are deterministic: what follows a refused one is the own token of p without it."""
    vocab_size = logits.shape[1]
    u, firsts = drawn.uniform_numbers(draft, rng), drawn.first_rows(draft)
    accepted = [
        _kept(tokens, u[first - i : first - i + len(tokens)], chances, vocab_size)
        for i, (tokens, first) in enumerate(zip(draft.tokens, firsts, strict=False))
    ]
    rows = logits[[first + kept for first, kept in zip(firsts, accepted, strict=False)]]
    for i, (tokens, kept) in enumerate(zip(draft.tokens, accepted, strict=True)):
        if kept < len(tokens) and sampling.temperatures[i] > 0.0 and 0 <= tokens[kept] < vocab_size:
            _forbid(rows[i], tokens[kept])
    indices = [index + kept for index, kept in zip(rng.indices, accepted, strict=True)]
    following = ops.draw(rows, sampling.temperatures, rng.seeds, indices, TARGET)
    return Verdict(accepted, following.tolist())


def _forbid(row: Tensor, token: int) -> None:
    """In place, unless nothing else is possible."""
    logit = row[token].clone()
    row[token] = -torch.inf
    if not (row > -torch.inf).any():
        row[token] = logit
