"""At temperature 0 the target's own token is the best one: a guess is kept when it is that."""

from __future__ import annotations

from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import TARGET
from specserve.types import Draft, RowRng, SamplingRows, Verdict


def verify(ops: Ops, logits: Tensor, draft: Draft, _sampling: SamplingRows, _rng: RowRng) -> Verdict:
    """Every sequence as if at temperature 0."""
    n = len(draft.tokens)
    return Verdict(*ops.accept(logits, draft.tokens, [0.0] * n, [0] * n, [0] * n, TARGET))
