"""Log-probabilities as a reply shows them. Each token's come from its own row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specserve.ops import Ops
from specserve.types import Logprob, Logprobs


def gather(
    ops: Ops, logits: Tensor, ids: Sequence[int], num_top: int, *, as_logits: bool = False
) -> list[Logprobs]:
    """One entry per row of `logits` [n, V] and its id: the id itself first, then the `num_top` best in order.

    An entry holds num_top or num_top + 1 tokens, the given one being listed once. `num_top` -1 is all. With
    `as_logits` the values are the logits themselves, not normalised.
    """
    if not len(ids):
        return []
    num_top = logits.shape[1] if num_top < 0 else num_top
    found = list(ops.logprobs(logits, list(ids), num_top))
    if as_logits:
        found[0] = logits[torch.arange(len(ids)), list(ids)]
        found[2] = logits.gather(1, found[3].to(logits.device))
    values, ranks, top_values, top_ids = (tensor.tolist() for tensor in found)
    entries = []
    for token, value, own_ranks, best_values, best_ids in zip(
        ids, values, ranks, top_values, top_ids, strict=True
    ):
        entry = {token: Logprob(value, own_ranks[0])}
        for best_id, best_value, rank in zip(best_ids, best_values, own_ranks[1:], strict=True):
            entry.setdefault(best_id, Logprob(best_value, rank))
        entries.append(entry)
    return entries
