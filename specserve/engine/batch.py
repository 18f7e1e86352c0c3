"""A plan as numbers: ids, positions, slots, block tables. As tensors for whoever calls op by op."""

from __future__ import annotations

from array import array

import numpy as np
import torch
from torch import Tensor

from specserve.engine.plan import Plan, Scheduled
from specserve.types import Batch, Rows


def build_batch(plan: Plan, page_size: int, vocab_size: int) -> Batch:
    """All rows of the step in one ragged batch; a sequence's rows lie next to each other."""
    ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    starts = [0]
    for item in plan.items:
        ids += _input_ids(item, vocab_size)
        span = range(item.start, item.start + item.num_rows)
        positions += span
        pages = item.seq.table.pages
        slots += [pages[p // page_size] * page_size + p % page_size for p in span]
        starts.append(len(ids))
    return Batch(
        ids=array("q", ids),
        positions=array("q", positions),
        slots=array("q", slots),
        starts=starts,
        contexts=[item.start + item.num_rows for item in plan.items],
        block_tables=[item.seq.table.pages for item in plan.items],
        page_size=page_size,
    )


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


def logits_rows(plan: Plan) -> list[int]:
    """Rows whose logits the verifier needs: the last known token's and every guess's."""
    rows: list[int] = []
    for item in plan.sampling_items:
        end = item.row + item.num_rows
        rows += range(end - 1 - len(item.draft), end)
    return rows


def _input_ids(item: Scheduled, vocab_size: int) -> list[int]:
    """Known tokens, then guesses. A guess outside the vocabulary has no embedding: its row computes
    something, and the verdict, which sees the guess itself, refuses it."""
    known_end = item.start + item.num_rows - len(item.draft)
    guesses = [token if 0 <= token < vocab_size else 0 for token in item.draft]
    return item.seq.tokens[item.start : known_end] + guesses
