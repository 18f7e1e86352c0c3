"""Runs a network over a paged cache as an engine would, only more roughly.

Pages of all sequences are dealt out in random order, every slot is NaN until it is written, sequences begin
one step after the other and all share their steps.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from specserve.models.base import CausalLM
from specserve.models.runner import EagerRunner, Runner, StepRows
from specserve.types import Batch, KVShape, LayerCache

Piece = tuple[int, int, int]  # sequence, first position, position after the last


@dataclass(frozen=True)
class Pages:
    """Block tables over a cache that was never written."""

    tables: list[list[int]]
    page_size: int
    cache: list[LayerCache]


def deal(shapes: Sequence[KVShape], lengths: Sequence[int], page_size: int, seed: int = 0) -> Pages:
    """Pages for sequences of these lengths, in random order, with two pages that belong to nobody."""
    counts = [-(-length // page_size) for length in lengths]
    total = sum(counts) + 2
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed)).tolist()
    tables = [[order.pop() for _ in range(count)] for count in counts]
    cache = [
        LayerCache(_empty(shape, total * page_size), _empty(shape, total * page_size)) for shape in shapes
    ]
    return Pages(tables, page_size, cache)


def _empty(shape: KVShape, num_slots: int) -> Tensor:
    return torch.full((num_slots, shape.num_kv_heads, shape.head_size), torch.nan, dtype=shape.dtype)


def make_batch(prompts: Sequence[Sequence[int]], pieces: Sequence[Piece], pages: Pages) -> Batch:
    ids, positions, slots, starts = [], [], [], [0]
    for sequence, first, end in pieces:
        ids += prompts[sequence][first:end]
        positions += range(first, end)
        table, size = pages.tables[sequence], pages.page_size
        slots += [table[p // size] * size + p % size for p in range(first, end)]
        starts.append(len(ids))
    numbers = (array("q", values) for values in (ids, positions, slots))
    contexts = [end for _, _, end in pieces]
    return Batch(*numbers, starts, contexts, [pages.tables[i] for i, _, _ in pieces], pages.page_size)


def step(
    runner: Runner, prompts: Sequence[Sequence[int]], pages: Pages, pieces: Sequence[Piece]
) -> list[StepRows]:
    """Compute the pieces' rows together: logits and features of each piece, for keeps."""
    batch = make_batch(prompts, pieces, pages)
    found = runner.forward(batch, list(range(len(batch.ids))))
    parts = [slice(first, last) for first, last in pairwise(batch.starts)]
    logits, features = found.logits.clone(), found.features
    return [StepRows(logits[part], None if features is None else features[part]) for part in parts]


def in_chunks(lengths: Sequence[int], chunk: int | None) -> list[list[Piece]]:
    """Steps of at most `chunk` rows per sequence (None: all in one step); sequence i begins at step i."""
    if chunk is None:
        return [[(i, 0, length) for i, length in enumerate(lengths)]]
    steps: list[list[Piece]] = []
    for i, length in enumerate(lengths):
        for number, first in enumerate(range(0, length, chunk), start=i):
            steps += [[]] * (number + 1 - len(steps))
            steps[number] = [*steps[number], (i, first, min(length, first + chunk))]
    return steps


def run_steps(
    runner: Runner, prompts: Sequence[Sequence[int]], pages: Pages, steps: Iterable[Sequence[Piece]]
) -> tuple[list[Tensor], list[Tensor]]:
    """Per prompt float32 logits [n, V] of its rows in order, and features [n, sum] (empty without any)."""
    logits: list[list[Tensor]] = [[] for _ in prompts]
    features: list[list[Tensor]] = [[] for _ in prompts]
    for pieces in steps:
        for (i, _, _), found in zip(pieces, step(runner, prompts, pages, pieces), strict=True):
            logits[i].append(found.logits)
            if found.features is not None:
                features[i].append(found.features)
    return [torch.cat(parts) for parts in logits], [torch.cat(parts) for parts in features if parts]


def run_paged(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    *,
    chunk: int | None = None,
    page_size: int = 4,
    features: Sequence[int] = (),
) -> tuple[list[Tensor], list[Tensor]]:
    """`run_steps` of all rows, op by op."""
    lengths = [len(prompt) for prompt in prompts]
    pages = deal(model.layers, lengths, page_size)
    runner = EagerRunner(model, pages.cache, features)
    return run_steps(runner, prompts, pages, in_chunks(lengths, chunk))
