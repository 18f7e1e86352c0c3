"""Attention in a recorded program equals the reference over pages, for every shape, window and cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor

from specserve.ops import Ops
from specserve.ops.attention import Attention, Rope
from specserve.ops.program import Limits
from specserve.types import KVShape, LayerCache, Rows
from tests.support.native import library
from tests.support.paged import Piece, deal, make_batch
from tests.support.recorded import Recorded, by_reference

LENGTHS = (150, 7, 64, 1, 90)
STEPS: list[list[Piece]] = [
    [(0, 0, 120), (1, 0, 1), (2, 0, 63)],
    [(0, 120, 121), (1, 1, 1), (2, 63, 64), (3, 0, 1), (4, 0, 90)],  # the second has no rows here
    [(0, 121, 138), (1, 1, 7)],
    [],
    [(0, 130, 150)],  # rows that come again, and others
]
HEADS = [(4, 4), (6, 2), (9, 3), (8, 1), (1, 1), (50, 1)]
CACHES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # a key's last bit may tip


def layers(size: int) -> Iterator[Attention]:
    """Layers with everything in turn: groupings, windows, rope over part of a head, norms of heads."""
    random = torch.Generator().manual_seed(size)
    windows, turns = cycle((None, 1, 5, 64, 70, 100)), cycle((size // 2, 0, size // 4, 1))
    for number, (heads, kv_heads) in enumerate(HEADS):
        norms = [torch.rand(size, generator=random) + 0.5 for _ in range(2)] if number % 2 else [None, None]
        rope = Rope(0.3 ** torch.arange(next(turns)), 1.2)
        yield Attention(
            heads, kv_heads, size, 1.5 / math.sqrt(size), rope, next(windows), norms[0], norms[1], 1e-5
        )


def run(
    a: Attention, cache_type: torch.dtype, page_size: int, threads: int, machine: str
) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs of all steps, native and by reference, each over a cache of its own."""
    width = (a.num_heads + 2 * a.num_kv_heads) * a.head_size
    starts = [sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
    ids = [list(range(start, start + length)) for start, length in zip(starts, LENGTHS, strict=True)]
    table = torch.randn(sum(LENGTHS), width, generator=torch.Generator().manual_seed(1))
    both = [deal([KVShape(a.num_kv_heads, a.head_size, cache_type)], LENGTHS, page_size) for _ in range(2)]
    native = Recorded(
        attend(a, both[0].cache[0]),
        table,
        limits=Limits(sum(LENGTHS), max(LENGTHS), page_size),
        num_threads=threads,
        instruction_set=machine,
    )
    reference = by_reference(attend(a, both[1].cache[0]), table)
    batches = [make_batch(ids, pieces, both[0]) for pieces in STEPS]
    return [native(batch) for batch in batches], [reference(batch) for batch in batches]


def attend(a: Attention, cache: LayerCache) -> Any:
    def network(ops: Ops, rows: Rows, x: Any) -> Any:
        return ops.attention(x, a, cache, ops.plan(rows))

    return network


@pytest.mark.parametrize("cache_type", CACHES)
@pytest.mark.parametrize("size", [8, 64, 80, 96, 128, 256])
def test_every_head_size_page_and_cache(size: int, cache_type: torch.dtype) -> None:
    machines, pages, threads = cycle(library().instruction_sets), cycle((8, 24, 16, 64, 40)), cycle((1, 2, 3))
    for a in layers(size):
        found, expected = run(a, cache_type, next(pages), next(threads), next(machines))
        for step, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(step, wanted, atol=CACHES[cache_type], rtol=0)


@pytest.mark.parametrize("window", [None, 3, 70])
def test_every_instruction_set_and_page_size_gives_its_own_bits_only(window: int | None) -> None:
    """Pages and threads change no bit; instruction sets stay close."""
    [a, *_] = layers(64)
    a = replace(a, window=window)
    whole = run(a, torch.float32, 8, 1, library().instruction_sets[0])[0]
    for machine in library().instruction_sets:
        own = run(a, torch.float32, 8, 1, machine)[0]
        for page_size, threads in ((16, 2), (24, 4), (64, 3)):
            assert same(run(a, torch.float32, page_size, threads, machine)[0], own)
        for step, wanted in zip(own, whole, strict=True):
            torch.testing.assert_close(step, wanted, atol=2e-5, rtol=0)


def same(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
