"""Lossless verification, token by token (Leviathan et al., 2023; Chen et al., 2023).

Deterministic drafts: the target's own token at each index is drawn from the request's seed, and a guess is
kept when it is that token. It is kept with probability p(guess), and given that it is not, the own token has
the law of p without the guess: acceptance test and residual of the papers for a one-hot q, with the text
equal to plain sampling for that seed. An empty draft is plain sampling.

Drawn drafts: guess x ~ q is kept iff p(x) > u q(x); the first one refused is replaced by a draw from
max(p - q, 0), normalised. Uniform, residual, draft and own token have noise of their own (`ops.philox`):
noise shared between them biases the result.
"""

from __future__ import annotations

import math

from torch import Tensor

from specserve.ops import Ops
from specserve.types import Draft, RowRng, SamplingRows, Verdict
from specserve.verify import coupled, drawn
from specserve.verify.drawn import Block, Judgement


def verify(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    """`specserve.verify.Verify`; greedy where the temperature is 0."""
    return drawn.verify(ops, logits, draft, sampling, rng, plain=coupled.verify, judge=judge)


def judge(block: Block) -> Judgement:
    """The first guess that fails its own test ends the block."""
    for j in range(len(block.tokens)):
        if not is_accepted(block, j):
            return Judgement(j, 1.0)
    return Judgement(len(block.tokens))


def is_accepted(block: Block, j: int) -> bool:
    """p > u q, in logarithms."""
    return block.log_p[j] > math.log(block.u[j]) + block.log_q[j]
