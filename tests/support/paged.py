"""Runs a network over a paged cache as an engine would, only more roughly.

Pages of all sequences are dealt out in random order, every slot is NaN until it is written, sequences begin
one step after the other and all share their steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specserve.models.base import CausalLM
from specserve.types import KVShape, LayerCache, Rows

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


def make_rows(prompts: Sequence[Sequence[int]], pieces: Sequence[Piece], pages: Pages) -> Rows:
    ids, positions, slots, starts = [], [], [], [0]
    for sequence, first, end in pieces:
        ids += prompts[sequence][first:end]
        positions += range(first, end)
        table, size = pages.tables[sequence], pages.page_size
        slots += [table[p // size] * size + p % size for p in range(first, end)]
        starts.append(len(ids))
    tensors = (torch.tensor(values, dtype=torch.int64) for values in (ids, positions, slots))
    contexts = [end for _, _, end in pieces]
    return Rows(*tensors, starts, contexts, [pages.tables[i] for i, _, _ in pieces], pages.page_size)


def run_paged(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    *,
    chunk: int | None = None,
    page_size: int = 4,
    features: Sequence[int] = (),
) -> tuple[list[Tensor], list[Tensor]]:
    """Per prompt: float32 logits [length, V] of all rows, and features [length, sum] (empty without any).

    `chunk`: how many rows of a sequence go into a step; None: all. Sequence i begins at step i.
    """
    pages = deal(model.layers, [len(prompt) for prompt in prompts], page_size)
    done = [0] * len(prompts)
    logits: list[list[Tensor]] = [[] for _ in prompts]
    streams: list[list[Tensor]] = [[] for _ in prompts]
    step = 0
    while any(done[i] < len(prompt) for i, prompt in enumerate(prompts)):
        pieces = [
            (i, done[i], min(len(prompt), done[i] + (chunk or len(prompt))))
            for i, prompt in enumerate(prompts)
            if done[i] < len(prompt) and (step >= i or chunk is None)
        ]
        rows = make_rows(prompts, pieces, pages)
        hidden, wanted = model.forward(rows, pages.cache, features)
        found = model.logits(hidden)
        for (i, _, end), first, last in zip(pieces, rows.starts, rows.starts[1:], strict=False):
            logits[i].append(found[first:last])
            if wanted is not None:
                streams[i].append(wanted[first:last])
            done[i] = end
        step += 1
    return [torch.cat(parts) for parts in logits], [torch.cat(parts) for parts in streams if parts]
