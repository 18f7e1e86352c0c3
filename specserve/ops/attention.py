"""Attention over pages: head norms, rope, write to the cache, then each row over the keys it may see.

A row reads its own key back from the cache, in the cache's dtype, so what it sees does not depend on which
step wrote it. Slots past a sequence's context are never read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from specserve.ops import cache as cache_ops
from specserve.ops import norm, rope
from specserve.types import LayerCache, Rows


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
class Plan:
    """What all layers of a step share: each sequence's slots, and angles and masks as they come up."""

    rows: Rows
    slots: list[Tensor]  # per sequence, [context] int64
    angles: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    masks: dict[tuple[int, int | None], Tensor] = field(default_factory=dict)


def plan(rows: Rows) -> Plan:
    """Look the slots up once per step. Rows' contexts must be covered by their block tables."""
    size = rows.page_size
    offsets = torch.arange(size, device=rows.slots.device)
    slots = []
    for pages, context in zip(rows.block_tables, rows.contexts, strict=True):
        used = torch.tensor(pages[: -(-context // size)], dtype=torch.int64, device=offsets.device)
        slots.append((used[:, None] * size + offsets).reshape(-1)[:context])
    return Plan(rows, slots)


def reference(qkv: Tensor, attention: Attention, cache: LayerCache, plan: Plan) -> Tensor:
    """qkv [n, (heads + 2 kv heads) * d], query heads first: [n, heads * d]."""
    a = attention
    heads = (a.num_heads, a.num_kv_heads, a.num_kv_heads)
    q, k, v = qkv.view(len(qkv), -1, a.head_size).split(heads, dim=1)  # type: ignore[no-untyped-call]
    if a.query_norm is not None and a.key_norm is not None:
        q = norm.reference(q, a.query_norm, a.norm_eps)
        k = norm.reference(k, a.key_norm, a.norm_eps)
    cosine, sine = _angles(a.rope, plan)
    q, k = rope.reference(q, cosine, sine), rope.reference(k, cosine, sine)
    cache_ops.write(k, v, cache, plan.rows.slots)
    out = torch.empty_like(q)
    for i, (start, end) in enumerate(zip(plan.rows.starts, plan.rows.starts[1:], strict=False)):
        out[start:end] = _attend(q[start:end], a, cache, plan, i)
    return out.view(len(qkv), -1)


def _angles(turn: Rope, plan: Plan) -> tuple[Tensor, Tensor]:
    key = id(turn)
    if key not in plan.angles:
        plan.angles[key] = rope.angles(plan.rows.positions, turn.inverse_frequencies, turn.factor)
    return plan.angles[key]


def _attend(q: Tensor, a: Attention, cache: LayerCache, plan: Plan, i: int) -> Tensor:
    """One sequence: q [n, heads, d] over its context of c keys. Heads of a group share their keys."""
    context = plan.rows.contexts[i]
    first = 0 if a.window is None else max(0, context - len(q) - a.window + 1)  # nobody sees earlier keys
    keys, values = (t.to(q.dtype).transpose(0, 1) for t in cache_ops.read(cache, plan.slots[i][first:]))
    group = a.num_heads // a.num_kv_heads
    stacked = q.transpose(0, 1).reshape(a.num_kv_heads, group * len(q), a.head_size)
    scores = (stacked @ keys.transpose(1, 2)).float() * a.scale  # [kv heads, group * n, c]
    if len(q) > 1 or a.window is not None:
        mask = _mask(len(q), context, first, a.window, plan, i)
        scores = scores.view(a.num_kv_heads, group, len(q), -1).masked_fill(mask, -torch.inf)
        scores = scores.view(a.num_kv_heads, group * len(q), -1)
    weighted = torch.softmax(scores, dim=-1).to(q.dtype) @ values
    return weighted.view(a.num_heads, len(q), a.head_size).transpose(0, 1)


def _mask(num_rows: int, context: int, first: int, window: int | None, plan: Plan, i: int) -> Tensor:
    """[n, c] True where row r, at position context - n + r, may not see key first + j."""
    if (i, window) not in plan.masks:
        device = plan.rows.slots.device
        row = torch.arange(context - num_rows, context, device=device)[:, None]
        key = torch.arange(first, context, device=device)[None, :]
        hidden = key > row
        if window is not None:
            hidden |= key <= row - window
        plan.masks[i, window] = hidden
    return plan.masks[i, window]
