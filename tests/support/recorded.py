"""A few ops as a recorded program, beside the same ops by reference.

A network is a function (ops, rows, x) of input rows x [n, d]. Recorded, x comes out of a float32 table of
embeddings, so any rows can be put in: `table` holds those of all steps, a step's ids choose among them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from specserve.models.batch import to_rows
from specserve.models.runner import NO_ROWS
from specserve.ops import Ops, reference_ops
from specserve.ops.native import CLASSES, TAKEN_OVER, Blocks, PackedWeight, WeightClass, make_pool, pack
from specserve.ops.program import Limits, Program
from specserve.ops.record import Recorder
from specserve.types import Batch, Rows
from tests.support.checkpoints import Pack
from tests.support.native import library
from tests.support.rounding import rows_for_int4, rows_for_int8, weights_int4, weights_int8

Network = Callable[[Ops, Rows, Any], Any]
Step = Callable[[Batch], Tensor]
BLOCKS = ("Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q8_0", "Q6_K")


@dataclass(frozen=True)
class Twin:
    """A packed matrix, the numbers it holds, and how it rounds the rows it multiplies."""

    packed: PackedWeight
    numbers: Tensor
    rounded: Callable[[Tensor], Tensor]


def make_twin(
    kind: str, heights: Sequence[int], k: int, *, bits: int = 8, interleaved: bool = False, seed: int = 0
) -> Twin:
    """Random matrices of `heights` rows in one; `kind` is a weight class or a GGUF block type."""
    random = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(n, k, generator=random) / k**0.5 for n in heights]
    if kind in CLASSES:
        numbers = [_NUMBERS[kind](t) for t in tensors]
        packed = pack(library(), tensors, kind, activation_bits=bits, interleaved=interleaved)
        return Twin(packed, torch.cat(numbers), _rounding(kind, bits))
    stored = [Pack(t.numpy(), kind, seed + i) for i, t in enumerate(tensors)]
    blocks = [Blocks(s.stored, int(s.kind), k) for s in stored]
    packed = pack(library(), blocks, None, activation_bits=bits, interleaved=interleaved)
    return Twin(
        packed, torch.cat([s.values for s in stored]), _rounding(TAKEN_OVER[int(stored[0].kind)], bits)
    )


_NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "float32": lambda w: w,
    "bfloat16": lambda w: w.bfloat16().float(),
    "int8": weights_int8,
    "int4": weights_int4,
}


def _rounding(weight_class: WeightClass, bits: int) -> Callable[[Tensor], Tensor]:
    if weight_class == "int8":
        return rows_for_int8
    if weight_class == "int4":
        return lambda x: rows_for_int4(x, bits)
    return lambda x: x


def rows_only(num_rows: int) -> Batch:
    """Rows 0, 1, … of the table, as one sequence without a cache."""
    ids = array("q", range(num_rows))
    return Batch(ids, ids, ids, [0, num_rows], [num_rows], [[]], 8)


class Recorded:
    """The network's output rows; its logits are these rows again, through a head that is the identity."""

    def __init__(
        self,
        network: Network,
        table: Tensor,
        *,
        limits: Limits | None = None,
        num_threads: int = 1,
        instruction_set: str | None = None,
    ) -> None:
        recorder = Recorder()
        plain = recorder.ops()
        ops = replace(
            plain,
            embed=lambda t, ids, scale: plain.embed(t.packed, ids, scale),  # type: ignore[union-attr]
            linear=lambda x, w, bias: plain.linear(x, w.packed, bias),  # type: ignore[union-attr]
        )
        inputs = pack(library(), [table], "float32", activation_bits=8)
        out = recorder.settle(network(ops, NO_ROWS, plain.embed(inputs, NO_ROWS.ids, 1.0)))
        num_body = len(recorder.records)
        head = pack(library(), [torch.eye(out.width)], "float32", activation_bits=8)
        recorder.settle(plain.linear(recorder.gather(out), head, None))
        body, rest = recorder.records[:num_body], recorder.records[num_body:]
        pool = make_pool(library(), num_threads, instruction_set)
        limits = limits or Limits(len(table), len(table), 8)
        self.program = Program(pool, body, rest, [out], limits, lambda p, *a: p.run(*a))

    def __call__(self, batch: Batch) -> Tensor:
        assert len(self.program.run(batch, [])) == 0
        found = self.program.kept()
        assert found is not None
        return found


def by_reference(network: Network, table: Tensor) -> Step:
    """The same rows, op by op on the numbers the matrices hold."""
    reference = reference_ops()
    ops = replace(
        reference,
        embed=lambda t, ids, scale: reference.embed(t.numbers, ids, scale),  # type: ignore[union-attr]
        linear=lambda x, w, bias: reference.linear(w.rounded(x), w.numbers, bias),  # type: ignore[union-attr]
    )

    def step(batch: Batch) -> Tensor:
        rows = to_rows(batch, table.device)
        x: Tensor = network(ops, rows, reference.embed(table, rows.ids, 1.0))
        return x

    return step
