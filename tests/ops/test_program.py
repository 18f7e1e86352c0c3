"""Recorded programs: rows that see each other, and cuts at marks."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from specserve.models.batch import to_rows
from specserve.models.runner import NO_ROWS
from specserve.ops import Ops, reference_ops
from specserve.ops.attention import Attention, Rope
from specserve.ops.native import PackedWeight, make_pool, pack
from specserve.ops.program import Limits, Program
from specserve.ops.record import Recorder
from specserve.types import Batch, KVShape, LayerCache, Rows
from tests.support.native import library
from tests.support.paged import deal, make_batch

CPU = torch.device("cpu")
WIDTH, VOCABULARY = 64, 50
ATTENTION = Attention(2, 1, 16, 0.25, Rope(0.1 ** torch.arange(8)), window=6)
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2]]


def matrices() -> list[Tensor]:
    """Table and head, qkv, output of attention."""
    random = torch.Generator().manual_seed(0)
    return [
        torch.randn(n, k, generator=random) / 8 for n, k in ((VOCABULARY, WIDTH), (64, WIDTH), (WIDTH, 32))
    ]


def network(ops: Ops, weights: list[PackedWeight] | list[Tensor], rows: Rows, cache: LayerCache) -> Tensor:
    """One layer of attention, its output marked before the stream takes it."""
    table, qkv, out = weights
    x = ops.embed(table, rows.ids, 1.0)
    h = ops.attention(ops.linear(x, qkv, None), ATTENTION, cache, ops.plan(rows))
    return ops.add(x, ops.mark(ops.linear(h, out, None)))


def run(batch: Batch, cache: LayerCache, at_marks: Callable[[Tensor], None] | None = None) -> Tensor:
    packed = [pack(library(), [matrix], "float32", activation_bits=8) for matrix in matrices()]
    recorder = Recorder()
    hidden = recorder.settle(network(recorder.ops(), packed, NO_ROWS, cache))
    num_body = len(recorder.records)
    recorder.settle(recorder.ops().linear(recorder.gather(hidden), packed[0], None))
    body, head = recorder.records[:num_body], recorder.records[num_body:]
    limits = Limits(len(batch.ids), 16, batch.page_size)
    program = Program(make_pool(library(), 2), body, head, [], limits, lambda p, *a: p.run(*a), at_marks)
    return program.run(batch, list(range(len(batch.ids))))


def by_reference(batch: Batch, cache: LayerCache, mark: Callable[[Tensor], Tensor]) -> Tensor:
    ops = replace(reference_ops(), mark=mark)
    hidden = network(ops, matrices(), to_rows(batch, CPU), cache)
    return ops.linear(hidden, matrices()[0], None)


def step(key_limits: list[int] | None = None) -> tuple[Batch, Callable[[], LayerCache]]:
    shape = KVShape(1, 16, torch.float32)
    pages = partial(deal, [shape], [len(prompt) for prompt in PROMPTS], 8)
    batch = make_batch(PROMPTS, [(i, 0, len(prompt)) for i, prompt in enumerate(PROMPTS)], pages())
    limits = None if key_limits is None else array("i", key_limits)
    return replace(batch, key_limits=limits), lambda: pages().cache[0]


@pytest.mark.parametrize("key_limits", [None, [8] * 8 + [5] * 5, [1, 8, 6, 4, 7, 6, 7, 8, 5, 2, 3, 4, 5]])
def test_rows_see_the_keys_they_are_told(key_limits: list[int] | None) -> None:
    batch, cache = step(key_limits)
    expected = by_reference(batch, cache(), lambda x: x)
    torch.testing.assert_close(run(batch, cache()), expected, atol=2e-5, rtol=0)


def test_a_program_is_cut_at_its_marks() -> None:
    batch, cache = step()
    seen: list[Tensor] = []

    def double(x: Tensor) -> None:
        seen.append(x.clone())
        x *= 2

    cut = run(batch, cache(), double)
    torch.testing.assert_close(cut, by_reference(batch, cache(), lambda x: 2 * x), atol=2e-5, rtol=0)
    assert [tuple(x.shape) for x in seen] == [(13, WIDTH)]
    assert not torch.equal(cut, run(batch, cache()))


def test_a_mark_changes_no_bit() -> None:
    batch, cache = step()
    assert torch.equal(run(batch, cache()), run(batch, cache(), lambda _: None))
