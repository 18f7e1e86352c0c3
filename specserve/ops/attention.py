"""Attention over pages: head norms, rope, write to the cache, then each row over the keys it may see.

A row reads its own key back from the cache, in the cache's dtype, so what it sees does not depend on which
step wrote it. Slots past a sequence's context are never read.

Sequences with equally many rows are attended together. Their contexts end at the same column: key j of c is
the one at position `context - c + j`, and where that is negative the first key stands in, hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from specserve.ops import cache as cache_ops
from specserve.ops import norm, rope
from specserve.types import LayerCache, Rows

MAX_KEYS = 1 << 15  # gathered at once, unless one sequence alone has more


@dataclass(frozen=True, slots=True)
class Rope:
    """`inverse_frequencies` [r] float32, 2 r ≤ head size; `factor` scales cosine and sine."""

    inverse_frequencies: Tensor
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's attention. `window`: a row at position p sees keys p - window + 1 … p; None sees all.
    `query_norm`, `key_norm` [head_size]: RMS norms per head before rope."""

    num_heads: int
    num_kv_heads: int
    head_size: int
    scale: float
    rope: Rope
    window: int | None = None
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None
    norm_eps: float = 0.0


@dataclass(frozen=True, slots=True)
class Group:
    """b sequences of n rows each. `masks` [b, 1, n, keys], True where a row sees a key, by window, as they
    come up; None where every row sees every key."""

    rows: Tensor  # [b, n] int64, where their rows stand in the batch
    slots: Tensor  # [b, c] int64
    contexts: list[int]  # [b], the longest is c
    key_limits: Tensor | None  # [b, n] int64, of `Rows`
    masks: dict[int | None, Tensor | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What all layers of a step share: who is attended with whom, and angles as they come up."""

    rows: Rows
    groups: list[Group]
    angles: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)


def plan(rows: Rows) -> Plan:
    """Look the slots up once per step. Contexts must be covered by their block tables."""
    alike: dict[tuple[int, int], list[int]] = {}
    for i, context in enumerate(rows.contexts):
        num_rows = rows.starts[i + 1] - rows.starts[i]
        if num_rows:  # contexts of one bit length: no more than half of what is gathered is filling
            alike.setdefault((num_rows, context.bit_length()), []).append(i)
    return Plan(
        rows,
        [
            _group(rows, num_rows, members)
            for (num_rows, bits), sequences in alike.items()
            for members in _runs(sequences, max(1, MAX_KEYS >> bits))
        ],
    )


def _runs(sequences: list[int], length: int) -> Iterator[list[int]]:
    for first in range(0, len(sequences), length):
        yield sequences[first : first + length]


def _group(rows: Rows, num_rows: int, members: Sequence[int]) -> Group:
    contexts = [rows.contexts[i] for i in members]
    longest, size = max(contexts), rows.page_size
    width = -(-longest // size)
    tables = [list(rows.block_tables[i][:width]) for i in members]
    pages = _column([table + [0] * (width - len(table)) for table in tables], rows)
    shift = _column([[context - longest] for context in contexts], rows)
    positions = (torch.arange(longest, device=pages.device) + shift).clamp(min=0)
    slots = pages.gather(1, positions // size) * size + positions % size
    starts = _column([[rows.starts[i]] for i in members], rows)
    own = starts + torch.arange(num_rows, device=starts.device)
    return Group(own, slots, contexts, None if rows.key_limits is None else rows.key_limits[own])


def _column(values: list[list[int]], rows: Rows) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=rows.slots.device)


def reference(qkv: Tensor, attention: Attention, cache: LayerCache, plan: Plan) -> Tensor:
    """qkv [n, (heads + 2 kv heads) * d], query heads first: [n, heads * d]."""
    a = attention
    heads = (a.num_heads, a.num_kv_heads, a.num_kv_heads)
    q, k, v = qkv.view(len(qkv), sum(heads), a.head_size).split(heads, dim=1)  # type: ignore[no-untyped-call]
    if a.query_norm is not None and a.key_norm is not None:
        q = norm.reference(q, a.query_norm, a.norm_eps)
        k = norm.reference(k, a.key_norm, a.norm_eps)
    cosine, sine = _angles(a.rope, plan)
    q, k = rope.reference(q, cosine, sine), rope.reference(k, cosine, sine)
    cache_ops.write(k, v, cache, plan.rows.slots)
    out = torch.empty_like(q)
    for group in plan.groups:
        out[group.rows] = _attend(q[group.rows], a, cache, group)
    return out.flatten(1)


def _angles(turn: Rope, plan: Plan) -> tuple[Tensor, Tensor]:
    key = id(turn)
    if key not in plan.angles:
        plan.angles[key] = rope.angles(plan.rows.positions, turn.inverse_frequencies, turn.factor)
    return plan.angles[key]


def _attend(q: Tensor, a: Attention, cache: LayerCache, group: Group) -> Tensor:
    """q [b, n, heads, d] over the group's keys: the same shape. Heads of a group share their keys."""
    num_rows, longest = q.shape[1], group.slots.shape[1]
    num_keys = longest if a.window is None else min(longest, num_rows + a.window - 1)  # nobody sees more
    slots = group.slots[:, longest - num_keys :]
    keys, values = (
        t.to(q.dtype).view(*slots.shape, a.num_kv_heads, a.head_size).transpose(1, 2)
        for t in cache_ops.read(cache, slots.reshape(-1))
    )
    if a.window not in group.masks:
        group.masks[a.window] = _visible(group, num_rows, num_keys, a.window)
    mask = group.masks[a.window]
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), keys, values, attn_mask=mask, scale=a.scale, enable_gqa=True
    )
    return out.transpose(1, 2)


def _visible(group: Group, num_rows: int, num_keys: int, window: int | None) -> Tensor | None:
    if num_rows == 1 and min(group.contexts) >= num_keys and group.key_limits is None:
        return None
    device = group.slots.device
    row = torch.arange(num_keys - num_rows, num_keys, device=device)[:, None]  # the column of its own key
    key = torch.arange(num_keys, device=device)
    shifts = [num_keys - context for context in group.contexts]
    first = torch.tensor(shifts, device=device)[:, None, None, None]
    end = row + 1 if group.key_limits is None else group.key_limits[:, None, :, None] + first
    seen = (key < end) & (key >= first)
    return seen if window is None else seen & (key > row - window)
