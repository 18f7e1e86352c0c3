"""The fused accept test of deterministic drafts: draw the target's own token row by row, stop at the first
guess that is another one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from specserve.ops import draw


def reference(
    logits: Tensor,
    drafts: Sequence[Sequence[int]],
    temperatures: Sequence[float],
    seeds: Sequence[int],
    indices: Sequence[int],
    purpose: int,
) -> tuple[list[int], list[int]]:
    """(accepted, next_tokens), one of each per sequence.

    Sequence i owns 1 + len(drafts[i]) consecutive rows of `logits` [R, V] float32, in order; the own token of
    its row j is drawn (`ops.draw`) at index `indices[i] + j`. A row behind a refusal changes nothing. An id
    outside the vocabulary is never equal to an own token.
    """
    row_temperatures: list[float] = []
    row_seeds: list[int] = []
    row_indices: list[int] = []
    for draft, temperature, seed, index in zip(drafts, temperatures, seeds, indices, strict=True):
        num_rows = 1 + len(draft)
        row_temperatures += [temperature] * num_rows
        row_seeds += [seed] * num_rows
        row_indices += range(index, index + num_rows)
    own = draw.reference(logits, row_temperatures, row_seeds, row_indices, purpose)
    return match(drafts, own.tolist())


def match(drafts: Sequence[Sequence[int]], own: Sequence[int]) -> tuple[list[int], list[int]]:
    """Keep each draft up to its first token that is not the target's own.

    `own` has one token per row. The own token of the row where a draft ends, by refusal or because it is used
    up, comes next.
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
    return accepted, next_tokens
