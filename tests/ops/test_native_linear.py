"""A matrix in a recorded program equals the reference on the numbers it holds, whatever is fused with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, product
from typing import Any

import pytest
import torch
from torch import Tensor

from specserve.ops import Activation, Ops
from specserve.ops.native import PackedWeight
from specserve.types import Rows
from tests.support.native import library
from tests.support.recorded import BLOCKS, Recorded, Twin, by_reference, make_twin, rows_only

KINDS = [("float32", 8), ("bfloat16", 8), ("int8", 8), ("int4", 8), ("int4", 16)]
SIZES = [(1, 1), (7, 5), (16, 31), (17, 33), (18, 32), (33, 64), (50, 100)]  # outputs, inputs
NUM_ROWS = (0, 1, 2, 5, 17)
RANDOM = torch.Generator().manual_seed(3)


@dataclass(frozen=True)
class Fused:
    """act(norm(x) W + bias), added to another product of x."""

    weight: Twin
    norm: Tensor | None
    bias: Tensor | None
    gate: Activation | None
    base: Twin | None

    def __call__(self, ops: Ops, rows: Rows, x: Any) -> Any:
        h = x if self.norm is None else ops.rms_norm(x, self.norm, 1e-5)
        h = ops.linear(h, self.weight, self.bias)  # type: ignore[arg-type]
        if self.gate is not None:
            h = ops.gated(h, self.gate)
        if self.base is None:
            return h
        return ops.add(ops.mark(ops.linear(x, self.base, None)), h)  # type: ignore[arg-type]

    def tolerance(self, kind: str) -> float:
        """Of the largest output. A norm's last bit may tip a digit: a 127th of a group's largest input, times
        a weight or two."""
        if self.norm is None or kind in ("float32", "bfloat16"):
            return 2e-5
        return 2e-2 if self.weight.packed.activation_bits == 8 else 2e-3


def fusions(kind: str, bits: int, n: int, k: int) -> Iterator[Fused]:
    for has_norm, has_bias, gate, accumulates in product(
        (False, True), (False, True), (None, "silu", "gelu_tanh"), (False, True)
    ):
        if gate is not None and n % 2:
            continue
        height = n if gate is None else n // 2
        heights = [n] if gate is None else [height, height]
        yield Fused(
            make_twin(kind, heights, k, bits=bits, interleaved=gate is not None),
            torch.rand(k, generator=RANDOM) + 0.5 if has_norm else None,
            torch.randn(n, generator=RANDOM) if has_bias else None,
            gate,
            make_twin("float32", [height], k, seed=1) if accumulates else None,
        )


def compare(fused: Fused, kind: str, k: int, instruction_set: str, num_threads: int) -> None:
    table = torch.randn(max(NUM_ROWS), k, generator=RANDOM)
    step = Recorded(fused, table, num_threads=num_threads, instruction_set=instruction_set)
    expected = by_reference(fused, table)
    tolerance = fused.tolerance(kind)
    for num_rows in NUM_ROWS:
        found, wanted = step(rows_only(num_rows)), expected(rows_only(num_rows))
        largest = max(1.0, *wanted.abs().flatten().tolist()) if num_rows else 1.0
        torch.testing.assert_close(found, wanted, atol=tolerance * largest, rtol=0)


@pytest.mark.parametrize(("kind", "bits"), KINDS)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_a_matrix_of_every_class(kind: str, bits: int, n: int, k: int) -> None:
    machines = cycle(product(library().instruction_sets, (1, 2)))
    for fused in fusions(kind, bits, n, k):
        compare(fused, kind, k, *next(machines))


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("bits", [8, 16])
def test_a_matrix_of_blocks_as_the_file_has_them(kind: str, bits: int) -> None:
    machines = cycle(product(library().instruction_sets, (1, 2)))
    for n, k in ((18, 256), (40, 512)):
        for fused in fusions(kind, bits, n, k):
            compare(fused, kind, k, *next(machines))


def test_parts_of_different_types_lie_side_by_side() -> None:
    """Queries and keys in one type, values in another: two native matrices in one op of the network."""
    parts = [make_twin("Q8_0", [20, 7], 64), make_twin("float32", [9], 64, seed=1)]
    weight = PackedWeight(tuple(native for part in parts for native in part.packed.parts), 36, 64, 8)
    bias, table = torch.randn(36, generator=RANDOM), torch.randn(5, 64, generator=RANDOM)
    step = Recorded(Fused(replace(parts[0], packed=weight), None, bias, None, None), table, num_threads=2)
    alone = [
        Recorded(Fused(part, None, own, None, None), table)(rows_only(5))
        for part, own in zip(parts, bias.split([27, 9]), strict=True)
    ]
    assert torch.equal(step(rows_only(5)), torch.cat(alone, dim=1))


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_packed_matrices_hold_the_numbers_of_their_definition(kind: str) -> None:
    twin, row = make_twin(kind, [20], 100), torch.empty(100)
    for number, expected in enumerate(twin.numbers):
        twin.packed.parts[0].row(number, 100, row.data_ptr())
        torch.testing.assert_close(row, expected, atol=1e-8, rtol=1e-6)
