"""How a drafter chooses a guess from its logits: `draft_sample_method`.

greedy          the best one; q is one-hot. What every drafter does at temperature 0
probabilistic   drawn from q = softmax(logits / temperature), with noise of its own that belongs to the block
of
                guesses; rules for drawn drafts want q. No top-k, no penalty: those are the target's
coupled         drawn from the same q with the noise with which the target will draw its own token at that
index,
                one number per *target* id; the rule `coupled` keeps it when the two are equal
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import DRAFT, TARGET, block_index
from specserve.types import Ask, DraftProbs

Method = Literal["greedy", "probabilistic", "coupled"]


def guess(
    ops: Ops,
    method: Method,
    logits: Tensor,
    asks: Sequence[Ask],
    places: Sequence[int],
    ids: Tensor | None = None,
) -> tuple[list[int], Tensor | None]:
    """(target ids, q [R, Vd] if the rows were drawn from it) of R guesses.

    Row r of `logits` [R, Vd] float32 is what the drafter says at guess `places[r]` after `asks[r].tokens`,
    its column c about the target id `ids[c]` (None: c itself). A drafter that guesses one token after the
    other calls this once per place with a row for each sequence; one that guesses in parallel, once with all
    rows.
    """
    temperatures = [0.0 if method == "greedy" else ask.temperature for ask in asks]
    scale = torch.tensor([t or 1.0 for t in temperatures], device=logits.device)
    scaled = logits / scale[:, None] if any(temperatures) else logits
    seeds, firsts = [ask.seed for ask in asks], [len(ask.tokens) for ask in asks]
    if method == "coupled":
        indices = [first + place for first, place in zip(firsts, places, strict=True)]
        tokens = ops.draw(_over_target_ids(scaled, ids), temperatures, seeds, indices, TARGET)
        return tokens.tolist(), None
    indices = [block_index(first, place) for first, place in zip(firsts, places, strict=True)]
    columns = ops.draw(scaled, temperatures, seeds, indices, DRAFT)
    tokens = columns if ids is None else ids[columns]
    return tokens.tolist(), scaled.softmax(1) if any(temperatures) else None


def draft_probs(
    asks: Sequence[Ask], q: Sequence[Tensor | None], ids: Tensor | None = None
) -> list[DraftProbs | None] | None:
    """`Draft.q` of asks whose guesses were chosen place by place: `q[j]` [n, Vd] is what `guess` gave at
    place j.

    Sequences at temperature 0 have none: they were not drawn.
    """
    rows = [row for row in q if row is not None]
    if not rows:
        return None
    probs = torch.stack(rows, dim=1)
    return [DraftProbs(probs[i], ids) if ask.temperature else None for i, ask in enumerate(asks)]


def _over_target_ids(logits: Tensor, ids: Tensor | None) -> Tensor:
    """A reduced vocabulary's logits where the target's noise expects them; its other ids are impossible.

    The one place where rows are widened: noise of scattered ids costs four times as many hashes as a whole
    row's.
    """
    if ids is None:
        return logits
    wide = logits.new_full((logits.shape[0], int(ids.max()) + 1), -torch.inf)
    return wide.index_copy_(1, ids, logits)
