"""Pieces of sequences side by side in one ragged batch; as tensors for whoever calls op by op."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specserve.types import Batch, Rows


class Piece(NamedTuple):
    """Rows of one sequence: `ids` stand at positions `start` and following, in the sequence's `pages`."""

    ids: Sequence[int]
    start: int
    pages: Sequence[int]


def ragged(pieces: Iterable[Piece], page_size: int) -> Batch:
    """Lists first: an array that grows takes a third longer."""
    ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    starts, contexts, tables = [0], [], []
    for own, start, pages in pieces:
        span = range(start, start + len(own))
        ids += own
        positions += span
        slots += [pages[p // page_size] * page_size + p % page_size for p in span]
        starts.append(len(ids))
        contexts.append(span.stop)
        tables.append(pages)
    arrays = array("q", ids), array("q", positions), array("q", slots)
    return Batch(*arrays, starts, contexts, tables, page_size)


def to_rows(batch: Batch, device: torch.device) -> Rows:
    """Copies of the batch's numbers as tensors."""
    limits = batch.key_limits
    return Rows(
        ids=_tensor(batch.ids, device),
        positions=_tensor(batch.positions, device),
        slots=_tensor(batch.slots, device),
        starts=batch.starts,
        contexts=batch.contexts,
        block_tables=batch.block_tables,
        page_size=batch.page_size,
        key_limits=None if limits is None else _tensor(limits, device),
    )


def _tensor(numbers: array[int], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(numbers, np.int64)).to(device)
