"""Equality: a guess is kept when it is the target's own token, drawn with the request's seed.

The text is that of plain sampling, bit for bit, whatever the guesses. Deterministic guesses are kept with
probability p(guess): the acceptance test of the papers for a one-hot q (`specserve.verify.standard`). A
drafter that draws with the target's own noise (`specserve.sampling.guess`) is kept more often, the closer q
is to p: two Gumbel-max draws that share their noise agree with probability at least (1 - d) / (1 + d), d the
total variation between p and q (Daliri, Musco, Suresh: "Coupling without communication and drafter-invariant
speculative decoding", 2024).
"""

from __future__ import annotations

from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import TARGET
from specserve.types import Draft, RowRng, SamplingRows, Verdict


def verify(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    """`specserve.verify.Verify`; the best token where the temperature is 0. `draft.q` is of no interest."""
    keys = sampling.temperatures, rng.seeds, rng.indices
    return Verdict(*ops.accept(logits, draft.tokens, *keys, TARGET))
