"""A program's ops by name: what the data flow says an op is for, and which ops are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specserve.bench.kernels_counts import input_bits, part_class
from specserve.ops.native import WeightClass
from specserve.ops.program import Op
from specserve.ops.record import Record


@dataclass(frozen=True, slots=True)
class OpGroup:
    """Ops of one name and one shape, usually one per layer. For a matrix `outputs` and `inputs` are its
    sizes; attention has a `window` where it has one."""

    name: str
    weight_class: WeightClass | None = None
    activation_bits: int | None = None
    outputs: int | None = None
    inputs: int | None = None
    window: int | None = None


def group_ops(ops: Sequence[Op]) -> dict[OpGroup, list[int]]:
    """Numbers of alike ops, in order of their first."""
    names = op_names([op.record for op in ops])
    groups: dict[OpGroup, list[int]] = {}
    for number, (op, name) in enumerate(zip(ops, names, strict=True)):
        groups.setdefault(_group(op, name), []).append(number)
    return groups


def op_names(records: Sequence[Record]) -> list[str]:
    """A matrix is named by its neighbours; what is no matrix, by its kind."""
    attended = {record.inputs[0].number for record in records if record.kind == "attention"}
    writers: dict[int, Record] = {}
    names = []
    for record in records:
        names.append(_name(record, records[-1], writers, attended))
        writers[record.output.number] = record
    return names


def _name(record: Record, last: Record, writers: dict[int, Record], attended: set[int]) -> str:
    if record.kind != "linear":
        return record.kind
    before = writers.get(record.inputs[0].number)
    if record is last:
        return "head"
    if record.gate is not None:
        return "gate_up"
    if record.output.number in attended:
        return "qkv"
    if before is not None and before.kind == "attention":
        return "output"
    if before is not None and before.gate is not None:
        return "down"
    return "linear"


def _group(op: Op, name: str) -> OpGroup:
    record = op.record
    if op.part is None or record.weight is None:
        return OpGroup(name, window=record.attention.window if record.attention else None)
    return OpGroup(
        name,
        part_class(op.part),
        input_bits(record.weight, op.part) if record.kind == "linear" else None,
        op.part.num_outputs,
        record.weight.num_inputs,
    )
