"""FLy: a refused guess may stay where the target is unsure and agrees with what follows ("Training-free
loosely speculative decoding", arXiv 2511.22972). Lossy.

A guess is *native* when `standard` would keep it at its place. One that is not is kept all the same when

    the target allows it: p > 0 (and q > 0, if it was drawn),
    the next W guesses are all native: a window that leaves the block does not count,
    the entropy of the target's K most likely tokens is at least theta: -sum p ln p, not renormalised.

Otherwise it ends the block as it would under `standard`, with the same noise; with an endless theta the rule
is `standard`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import TARGET
from specserve.types import Draft, RowRng, SamplingRows, Verdict
from specserve.verify import coupled, drawn, standard
from specserve.verify.drawn import Block, Floats, Judgement, softmax


@dataclass(frozen=True, slots=True)
class Options:
    """W in guesses, theta in nats, K in tokens."""

    fly_window_size: int
    fly_entropy_threshold: float
    fly_entropy_top_k: int


def verify(
    options: Options, ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng
) -> Verdict:
    """`specserve.verify.Verify`, its options bound."""

    def judge(block: Block) -> Judgement:
        native = [standard.is_accepted(block, j) for j in range(len(block.tokens))]
        kept = scan(
            native, options.fly_window_size, lambda j: _may_stay(block.rows[j], block.tokens[j], options)
        )
        return Judgement(kept, 1.0 if kept < len(block.tokens) else None)

    def plain(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
        return _verify_plain(options, ops, logits, draft, sampling, rng)

    return drawn.verify(ops, logits, draft, sampling, rng, plain=plain, judge=judge)


def scan(native: Sequence[bool], window: int, may_stay: Callable[[int], bool]) -> int:
    """How many guesses are kept. `may_stay(j)` is asked last, it looks at a whole row."""
    kept = 0
    while kept < len(native):
        after = native[kept + 1 : kept + 1 + window]
        if not native[kept] and not (len(after) == window and all(after) and may_stay(kept)):
            break
        kept += 1
    return kept


def _verify_plain(
    options: Options, ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng
) -> Verdict:
    """Guesses that are deterministic: native is who equals the target's own token."""
    if max(draft.lengths, default=0) <= options.fly_window_size:
        return coupled.verify(ops, logits, draft, sampling, rng)
    firsts = drawn.first_rows(draft)
    own = _own_tokens(ops, logits, draft, sampling, rng)
    accepted, next_tokens = [], []
    for tokens, first in zip(draft.tokens, firsts, strict=False):
        rows = logits[first : first + len(tokens)]
        native = [token == own[first + j] for j, token in enumerate(tokens)]
        kept = scan(native, options.fly_window_size, _gate(rows, tokens, options))
        accepted.append(kept)
        next_tokens.append(own[first + kept])
    return Verdict(accepted, next_tokens)


def _gate(rows: Tensor, tokens: Sequence[int], options: Options) -> Callable[[int], bool]:
    return lambda j: _may_stay(rows[j].cpu().numpy(), tokens[j], options)


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


def _may_stay(row: Floats, token: int, options: Options) -> bool:
    """The target allows it, and is unsure here. At temperature 0 the entropy is that of temperature 1."""
    if not 0 <= token < len(row) or not row[token] > -np.inf:
        return False
    return entropy(softmax(row), options.fly_entropy_top_k) >= options.fly_entropy_threshold


def entropy(p: Floats, top_k: int) -> float:
    """Of the `top_k` largest of p [V], not renormalised, in nats."""
    size = min(top_k, len(p))
    top = np.partition(p, len(p) - size)[len(p) - size :].astype(np.float64)
    top = top[top > 0.0]
    return float(-(top * np.log(top)).sum())
