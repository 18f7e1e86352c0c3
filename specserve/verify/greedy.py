"""Equality: a guess is kept when it is the target's own token.

At temperature 0 the target's own token is the best one; `verify` here is that case alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import TARGET
from specserve.types import Draft, RowRng, SamplingRows, Verdict


def verify(ops: Ops, logits: Tensor, draft: Draft, _sampling: SamplingRows, _rng: RowRng) -> Verdict:
    """Every sequence as if at temperature 0."""
    num_rows = logits.shape[0]
    best = ops.draw(logits, [0.0] * num_rows, [0] * num_rows, [0] * num_rows, TARGET)
    return match(draft.tokens, best.tolist())


def match(drafts: Sequence[Sequence[int]], own: Sequence[int]) -> Verdict:
    """Keep each draft up to its first token that is not the target's own.

    `own` has one token per row, 1 + len(draft) rows per sequence. The own token of the row where a draft
    ends, by refusal or because it is used up, comes next. An id outside the vocabulary is never equal.
    """
    accepted, next_tokens = [], []
    first = 0
    for draft in drafts:
        kept = 0
        for token in draft:
            if token != own[first + kept]:
                break
            kept += 1
        accepted.append(kept)
        next_tokens.append(own[first + kept])
        first += 1 + len(draft)
    return Verdict(accepted, next_tokens)
