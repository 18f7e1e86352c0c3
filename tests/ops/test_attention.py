"""Attention over pages equals a loop over rows, heads and keys, for every shape and batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from specserve.models.batch import to_rows
from specserve.ops import attention, norm
from specserve.ops.attention import Attention, Rope
from specserve.types import KVShape, LayerCache, Rows
from tests.support.paged import deal, make_batch

# (rows already there, rows of this step) of each sequence
MIXED = [(0, 7), (12, 1), (3, 4), (30, 1), (0, 1), (17, 4), (8, 3)]


def layer(heads: int, kv_heads: int, size: int, window: int | None = None) -> Attention:
    return Attention(heads, kv_heads, size, 0.7 / math.sqrt(size), Rope(torch.zeros(0)), window)


def filled(
    batch: Sequence[tuple[int, int]], a: Attention, dtype: torch.dtype = torch.float32, page_size: int = 4
) -> tuple[LayerCache, Rows]:
    """Sequences whose earlier rows are random and whose other slots are NaN."""
    lengths = [there + rows for there, rows in batch]
    shape = KVShape(a.num_kv_heads, a.head_size, dtype)
    pages = deal([shape], [length + 3 for length in lengths], page_size)
    (layer,) = pages.cache
    random = torch.Generator().manual_seed(1)
    for table, (there, _) in zip(pages.tables, batch, strict=True):
        slots = slots_of(table, range(there), page_size)
        for stored in (layer.keys, layer.values):
            stored[slots] = torch.randn(there, *stored.shape[1:], generator=random).to(dtype)
    pieces = [(i, there, there + rows) for i, (there, rows) in enumerate(batch)]
    ids = [[0] * length for length in lengths]
    return layer, to_rows(make_batch(ids, pieces, pages), layer.keys.device)


def slots_of(table: Sequence[int], positions: range, page_size: int) -> list[int]:
    return [table[p // page_size] * page_size + p % page_size for p in positions]


def random_qkv(rows: Rows, a: Attention) -> Tensor:
    heads = a.num_heads + 2 * a.num_kv_heads
    return torch.randn(len(rows.ids), heads * a.head_size, generator=torch.Generator().manual_seed(2))


def by_loops(qkv: Tensor, a: Attention, cache: LayerCache, rows: Rows) -> Tensor:
    """The definition, one row and one head at a time, over what the cache holds after the step."""
    out = []
    queries = qkv.double().view(len(qkv), -1, a.head_size)[:, : a.num_heads]
    for i, (start, end) in enumerate(zip(rows.starts, rows.starts[1:], strict=False)):
        for row in range(start, end):
            last = rows.contexts[i] - (end - row)
            first = 0 if a.window is None else max(0, last - a.window + 1)
            end_key = last + 1 if rows.key_limits is None else int(rows.key_limits[row])
            slots = slots_of(rows.block_tables[i], range(first, end_key), rows.page_size)
            for head in range(a.num_heads):
                shared = head // (a.num_heads // a.num_kv_heads)
                scores = cache.keys[slots, shared].double() @ queries[row, head] * a.scale
                out.append(torch.softmax(scores, 0) @ cache.values[slots, shared].double())
    return torch.stack(out).view(len(qkv), -1)


def compare(
    batch: Sequence[tuple[int, int]],
    a: Attention,
    page_size: int = 4,
    key_limits: Sequence[int] | None = None,
) -> None:
    cache, rows = filled(batch, a, page_size=page_size)
    if key_limits is not None:
        rows = replace(rows, key_limits=torch.tensor(key_limits))
    qkv = random_qkv(rows, a)
    got = attention.reference(qkv, a, cache, attention.plan(rows))
    torch.testing.assert_close(got, by_loops(qkv, a, cache, rows).float(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("size", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (9, 3), (8, 1)])
def test_every_head_size_and_grouping(size: int, heads: tuple[int, int]) -> None:
    compare(MIXED, layer(*heads, size))


@pytest.mark.parametrize("window", [1, 2, 5, 16, 100])
@pytest.mark.parametrize("page_size", [1, 4, 7, 16])
def test_a_window_ends_with_the_row_itself(window: int, page_size: int) -> None:
    compare(MIXED, layer(6, 2, 16, window), page_size)


@pytest.mark.parametrize("batch", [[(5, 1)], [(0, 9)], [(20, 1)] * 5, [(3, 1), (100, 1)], [(16, 2), (15, 2)]])
@pytest.mark.parametrize("window", [None, 6])
def test_batches_of_one_kind(batch: list[tuple[int, int]], window: int | None) -> None:
    compare(batch, layer(4, 2, 16, window))


@pytest.mark.parametrize("window", [None, 3])
def test_the_rows_of_a_block_see_each_other(window: int | None) -> None:
    block = [there + rows for there, rows in MIXED for _ in range(rows)]
    compare(MIXED, layer(6, 2, 16, window), key_limits=block)


def test_a_row_sees_as_many_keys_as_it_is_told() -> None:
    compare([(5, 3), (0, 2), (9, 1)], layer(4, 2, 16), key_limits=[1, 8, 6, 2, 1, 7])


def test_many_long_sequences_are_gathered_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "MAX_KEYS", 64)
    batch = [(20 + i % 3, 1) for i in range(7)]
    rows = filled(batch, layer(2, 1, 8))[1]
    assert [len(group.contexts) for group in attention.plan(rows).groups] == [2, 2, 2, 1]
    compare(batch, layer(2, 1, 8))


def test_a_sequence_without_rows_and_a_step_without_any() -> None:
    a = layer(4, 2, 16)
    compare([(4, 2), (3, 0), (4, 1)], a)
    cache, rows = filled([(4, 0)], a)
    assert attention.reference(random_qkv(rows, a), a, cache, attention.plan(rows)).shape == (0, 64)


@pytest.mark.parametrize("window", [None, 5])
def test_garbage_past_the_context_and_in_other_pages_is_never_read(window: int | None) -> None:
    a = layer(4, 2, 16, window)
    cache, rows = filled(MIXED, a)
    got = attention.reference(random_qkv(rows, a), a, cache, attention.plan(rows))
    assert cache.keys.isnan().any()
    assert got.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_row_reads_its_own_key_back_in_the_dtype_of_the_cache(dtype: torch.dtype) -> None:
    a = layer(4, 2, 16)
    cache, rows = filled(MIXED, a, dtype)
    qkv = random_qkv(rows, a)
    got = attention.reference(qkv, a, cache, attention.plan(rows))
    assert got.dtype == torch.float32
    torch.testing.assert_close(
        got, by_loops(qkv, a, cache, rows).float(), rtol=1e-5, atol=2e-6
    )  # the loops read the rounded keys


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_queries_stay_close(dtype: torch.dtype) -> None:
    a = layer(6, 2, 64)
    cache, rows = filled(MIXED, a, dtype)
    qkv = random_qkv(rows, a).to(dtype)
    got = attention.reference(qkv, a, cache, attention.plan(rows))
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), by_loops(qkv, a, cache, rows).float(), rtol=0.02, atol=0.02)


def test_heads_are_normed_before_they_turn() -> None:
    turn = Rope(torch.tensor([1.0, 0.25]))  # the first four of eight components
    a = replace(
        layer(2, 1, 8), rope=turn, query_norm=torch.rand(8) + 0.5, key_norm=torch.rand(8) + 0.5, norm_eps=0.1
    )
    cache, rows = filled([(0, 3)], a)
    qkv = random_qkv(rows, a)
    q, k, v = qkv.view(3, 4, 8).split([2, 1, 1], dim=1)  # type: ignore[no-untyped-call]
    turned = []
    for x, weight in ((q, a.query_norm), (k, a.key_norm)):
        assert weight is not None
        x = norm.reference(x, weight, 0.1).double()
        pairs = torch.complex(x[..., :2], x[..., 2:4])
        angle = torch.arange(3)[:, None, None] * turn.inverse_frequencies.double()
        pairs = pairs * torch.polar(torch.ones_like(angle), angle)
        turned.append(torch.cat([pairs.real, pairs.imag, x[..., 4:]], dim=-1).float())
    got = attention.reference(qkv, a, cache, attention.plan(rows))
    slots = slots_of(rows.block_tables[0], range(3), rows.page_size)
    torch.testing.assert_close(cache.keys[slots], turned[1])
    torch.testing.assert_close(cache.values[slots], v)
    expected = by_loops(torch.cat([*turned, v], dim=1).view(3, -1), a, cache, rows)
    torch.testing.assert_close(got, expected.float(), rtol=1e-5, atol=2e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_an_accelerator_gives_the_same() -> None:
    a = layer(6, 2, 64, 5)
    cache, rows = filled(MIXED, a)
    qkv = random_qkv(rows, a)
    there = replace(rows, ids=rows.ids.cuda(), positions=rows.positions.cuda(), slots=rows.slots.cuda())
    far = LayerCache(cache.keys.cuda(), cache.values.cuda())
    turned = replace(a, rope=Rope(torch.zeros(0, device="cuda")))
    got = attention.reference(qkv.cuda(), turned, far, attention.plan(there)).cpu()
    expected = attention.reference(qkv, a, cache, attention.plan(rows))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
