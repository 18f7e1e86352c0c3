"""Block verification (Sun et al.: "Block verification accelerates speculative decoding", 2024), lossless.

A block of guesses x_1 ... x_n is judged as a whole. The first i may be kept when u_i <= h_i, where

    P_0 = 1,  P_i = min(1, P_{i-1} p_i(x_i) / q_i(x_i))
    R_i = sum over x of max(P_i p_{i+1}(x) - q_{i+1}(x), 0)
    h_i = R_i / (R_i + 1 - P_i) for i < n,  h_n = P_n

and the longest that may be kept are: a failing u_1 does not end the block. Then comes the target's own token
if all n are, else a draw from max(P_i p_{i+1} - q_{i+1}, 0), normalised. On average at least as many guesses
are kept as by the rule that goes token by token.

What is kept depends on guesses further on, so a refusal says something about the noise of later positions; u
and residual belong to the block (`ops.philox.block_index`), as drawn guesses do: keyed by position alone the
next block would meet noise that was looked at already, and the text would be biased.

Where guesses are deterministic, the product of p's leaves nothing to gain over one token after the other, and
the rule is equality: the text of plain sampling.
"""

from __future__ import annotations

import math

from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import block_index
from specserve.types import Draft, RowRng, SamplingRows, Verdict
from specserve.verify import coupled, drawn
from specserve.verify.drawn import Block, Judgement


def verify(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    """`specserve.verify.Verify`; greedy where the temperature is 0."""
    return drawn.verify(ops, logits, draft, sampling, rng, plain=coupled.verify, judge=judge, key=block_index)


def judge(block: Block) -> Judgement:
    """From the longest on. R_i <= P_i implies h_i <= P_i, so most rows need not be summed."""
    products = list(_products(block))
    n = len(block.tokens)
    for i in range(n, 0, -1):
        u, product = block.u[i - 1], products[i]
        if u <= product and (i == n or u <= _chance(product, block.residual_mass(i, product))):
            return Judgement(i, None if i == n else product)
    return Judgement(0, None if n == 0 else 1.0)


def _products(block: Block) -> list[float]:
    """P_0 ... P_n."""
    log_product, found = 0.0, [1.0]
    for log_p, log_q in zip(block.log_p, block.log_q, strict=True):
        log_product = min(0.0, log_product + log_p - log_q)
        found.append(math.exp(log_product))
    return found


def _chance(product: float, mass: float) -> float:
    """h_i of P_i and R_i."""
    rest = mass + 1.0 - product
    return mass / rest if rest > 0.0 else 1.0
