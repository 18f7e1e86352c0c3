"""Ops that handle whole rows equal their references in a recorded program, at odd widths too."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from specserve.ops import Ops
from specserve.types import Rows
from tests.support.native import library
from tests.support.recorded import BLOCKS, Network, Recorded, Twin, by_reference, make_twin, rows_only

WIDTHS = (1, 7, 8, 9, 31, 33, 64, 100)
RANDOM = torch.Generator().manual_seed(4)
NUM_ROWS = (0, 1, 5)


def compare(network: Network, width: int, tolerance: float, table: Tensor | None = None) -> None:
    table = torch.randn(max(NUM_ROWS), width, generator=RANDOM) if table is None else table
    expected = by_reference(network, table)
    for instruction_set, num_threads in product(library().instruction_sets, (1, 3)):
        step = Recorded(network, table, num_threads=num_threads, instruction_set=instruction_set)
        for num_rows in NUM_ROWS:
            batch = rows_only(num_rows)
            torch.testing.assert_close(step(batch), expected(batch), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("width", WIDTHS)
def test_embedding_rows_are_those_of_the_table(kind: str, width: int) -> None:
    embed_from(make_twin(kind, [5], width), width)


@pytest.mark.parametrize("kind", BLOCKS)
def test_embedding_rows_of_blocks(kind: str) -> None:
    embed_from(make_twin(kind, [5], 512), 512)


def embed_from(twin: Twin, width: int) -> None:
    def network(ops: Ops, rows: Rows, _: Any) -> Any:
        return ops.embed(twin, rows.ids, 3.5)  # type: ignore[arg-type]

    compare(network, width, 1e-6)


@pytest.mark.parametrize("width", WIDTHS)
def test_norms_alone_and_as_sandwich(width: int) -> None:
    weight = torch.rand(width, generator=RANDOM) + 0.5
    compare(lambda ops, _, x: ops.mark(ops.rms_norm(x, weight, 1e-5)), width, 1e-5)
    compare(lambda ops, _, x: ops.add(x, ops.rms_norm(x, weight, 1e-5)), width, 1e-5)


def test_a_row_of_zeros_stays_zero() -> None:
    weight = torch.ones(9)
    compare(lambda ops, _, x: ops.mark(ops.rms_norm(x, weight, 1e-5)), 9, 0.0, torch.zeros(5, 9))


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_kept_is_not_changed_by_later_additions(width: int) -> None:
    def network(ops: Ops, _: Rows, x: Any) -> Any:
        kept = ops.keep(x)
        ops.add(x, ops.keep(x))
        return kept

    compare(network, width, 0.0)


@pytest.mark.parametrize("width", WIDTHS)
def test_streams_add_up(width: int) -> None:
    compare(lambda ops, _, x: ops.add(ops.keep(x), x), width, 0.0)


def test_values_that_share_a_buffer_are_never_needed_together() -> None:
    """A network of many values of one width, each read late."""
    twin = make_twin("float32", [12], 12)

    def network(ops: Ops, _: Rows, x: Any) -> Any:
        values = [x]
        for _ in range(5):
            values.append(ops.mark(ops.linear(values[-1], twin, None)))  # type: ignore[arg-type]
        total = ops.keep(values[0])
        for value in values[1:]:
            total = ops.add(total, value)
        return total

    compare(network, 12, 2e-5)


@pytest.mark.parametrize("wanted", [[], [0], [4, 0, 0, 2], list(range(5))])
def test_logits_are_of_the_rows_that_were_asked_for(wanted: list[int]) -> None:
    table = torch.randn(5, 33, generator=RANDOM)
    step = Recorded(lambda ops, _, x: ops.keep(x), table, num_threads=2)
    assert torch.equal(step.program.run(rows_only(5), wanted), table[wanted])
    assert torch.equal(step.program.logits_at([3]), table[[3]])


def test_a_step_writes_over_the_last_logits_and_over_no_further_ones() -> None:
    table = torch.randn(5, 33, generator=RANDOM)
    program = Recorded(lambda ops, _, x: ops.keep(x), table).program
    first = program.run(rows_only(5), [0, 1])
    further = program.logits_at([4])
    for wanted in ([2, 3, 1, 0, 4], [3], [], [4, 2]):
        assert torch.equal(program.run(rows_only(5), wanted), table[wanted])
    again = program.run(rows_only(5), [1, 0])
    assert program.run(rows_only(5), [3, 4]) is again, "no step pays for memory of its own"
    assert torch.equal(again, table[[3, 4]])
    assert torch.equal(first, table[[0, 1]]), "memory that became too small is left to whoever has it"
    assert torch.equal(further, table[[4]])
