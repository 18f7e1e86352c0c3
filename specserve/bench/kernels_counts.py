"""What a step's ops must read and multiply at least: counted from packed matrices and cache tensors.

Bytes are those of weights, keys and values, each once; rows between ops stay in the caches. A
multiplication is one of a weight and an input, or of attention: half its products are scores, half values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specserve.ops.native import CLASSES, PackedWeight, WeightClass
from specserve.ops.program import Op
from specserve.ops.record import Record


@dataclass(frozen=True, slots=True)
class StepShape:
    """A step of one sequence: rows at positions [start, end), logits wanted of the last `num_wanted`."""

    start: int
    end: int
    num_wanted: int

    @property
    def num_rows(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Work:
    """`num_bytes` read, `num_macs` multiplications, each with the addition of its product."""

    num_bytes: int = 0
    num_macs: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.num_bytes + other.num_bytes, self.num_macs + other.num_macs)


def step_works(ops: Sequence[Op], shape: StepShape) -> list[Work]:
    """One `Work` per op. Behind the gather only rows whose logits are wanted go on."""
    works = []
    num_rows = shape.num_rows
    for op in ops:
        works.append(_work(op, shape, num_rows))
        if op.record.kind == "gather":
            num_rows = shape.num_wanted
    return works


def part_class(part: Any) -> WeightClass:
    number: int = part.weight_class
    return CLASSES[number]


def input_bits(weight: PackedWeight, part: Any) -> int | None:
    """How finely the inputs of a matrix are rounded; None where they stay floats. See csrc/activations.h:
    `int8` matrices always take 16 bits."""
    match part_class(part):
        case "int4":
            return weight.activation_bits
        case "int8":
            return 16
        case _:
            return None


def _work(op: Op, shape: StepShape, num_rows: int) -> Work:
    match op.record.kind:
        case "linear" if num_rows:
            return _linear(op, num_rows)
        case "embed":
            return Work(num_rows * op.part.num_bytes // op.part.num_outputs)
        case "attention":
            return _attention(op.record, shape)
        case _:
            return Work()


def _linear(op: Op, num_rows: int) -> Work:
    """Padding is read but not counted as multiplications."""
    weight = op.record.weight
    assert weight is not None
    return Work(op.part.num_bytes, num_rows * op.part.num_outputs * weight.num_inputs)


def _attention(record: Record, shape: StepShape) -> Work:
    """The row at position p sees the keys of its window up to itself."""
    a, cache = record.attention, record.cache
    assert a is not None
    assert cache is not None
    window = a.window or shape.end
    slot_bytes = sum(part[0].numel() * part.element_size() for part in (cache.keys, cache.values))
    num_slots = shape.end - max(0, shape.start + 1 - window)
    num_seen = sum(min(position + 1, window) for position in range(shape.start, shape.end))
    return Work(num_slots * slot_bytes, 2 * a.num_heads * a.head_size * num_seen)
