"""Ops are named by what the data flow says they are for, and grouped when they are alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from specserve.bench.kernels_ops import OpGroup, group_ops, op_names
from specserve.bench.kernels_steps import program_of
from specserve.ops.native import CLASSES, PackedWeight, WeightClass
from specserve.ops.program import Op
from specserve.ops.record import Record, Value
from tests.support.checkpoints import gemma
from tests.support.native import library
from tests.support.tiny import VOCAB, deploy_tiny, write_tiny

A, B, C = Value(0, 8), Value(1, 8), Value(2, 8)


def matrix(weight_class: WeightClass, num_outputs: int = 8, bits: int = 8) -> tuple[Any, PackedWeight]:
    part = SimpleNamespace(weight_class=CLASSES.index(weight_class), num_outputs=num_outputs, num_bytes=0)
    return part, PackedWeight((part,), num_outputs, 8, bits)


def test_layers_of_a_network_are_one_group_per_op(tmp_path: Path) -> None:
    library()
    program = program_of(deploy_tiny(write_tiny(tmp_path), {"quantization": "int4"}).engine)
    assert program is not None
    groups = group_ops(program.ops)
    assert [(group.name, len(numbers)) for group, numbers in groups.items()] == [
        ("embed", 1),
        ("qkv", 3),
        ("attention", 3),
        ("output", 3),
        ("gate_up", 3),
        ("down", 3),
        ("norm", 1),
        ("gather", 1),
        ("head", 1),
    ]
    assert sorted(n for numbers in groups.values() for n in numbers) == list(range(len(program.ops)))
    assert OpGroup("qkv", "int4", 16, 128, 64) in groups  # sensitive to its input's rounding
    assert OpGroup("down", "int4", 8, 64, 96) in groups


def test_norms_between_do_not_hide_what_a_matrix_is_for(tmp_path: Path) -> None:
    """Sandwich norms, and layers of two windows."""
    library()
    program = program_of(deploy_tiny(write_tiny(tmp_path, gemma(vocab_size=VOCAB))).engine)
    assert program is not None
    found = {(group.name, group.window): len(numbers) for group, numbers in group_ops(program.ops).items()}
    assert found[("attention", 5)] == 5
    assert found[("attention", None)] == 1
    for name in ("qkv", "output", "gate_up", "down"):
        assert found[(name, None)] == 6
    assert found[("norm", None)] == 2 * 6 + 1


def test_parts_of_a_matrix_and_other_classes_are_groups_of_their_own() -> None:
    narrow, weight = matrix("int4", 8, 16)
    wide, other = matrix("int8", 4)
    both = replace(weight, parts=(narrow, wide), num_outputs=12)
    qkv = Record("linear", (A,), B, weight=both)
    attention = Record("attention", (B,), C)
    last = Record("linear", (C,), A, weight=other)
    groups = group_ops([Op(qkv, narrow), Op(qkv, wide), Op(attention, None), Op(last, wide)])
    assert list(groups) == [
        OpGroup("qkv", "int4", 16, 8, 8),
        OpGroup("qkv", "int8", 16, 4, 8),
        OpGroup("attention"),
        OpGroup("head", "int8", 16, 4, 8),
    ]


def test_a_matrix_of_no_known_use_is_a_linear() -> None:
    _, weight = matrix("float32")
    first = Record("linear", (A,), B, weight=weight)
    assert op_names([first, Record("linear", (B,), C, weight=weight)]) == ["linear", "head"]


def test_inputs_of_float_matrices_are_not_rounded() -> None:
    part, weight = matrix("bfloat16")
    [group] = group_ops([Op(Record("linear", (A,), B, weight=weight), part)])
    assert group.activation_bits is None
