"""Bytes and multiplications, against what a tiny checkpoint has by hand.

Panels are 16 outputs high. Of a group of 32 inputs, int8 holds 16 x 32 integers and 16 half scales (544
bytes), int4 16 x 16 bytes, 16 half scales and 16 half minima (320 bytes).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from specserve.bench.kernels_counts import StepShape, Work, step_works
from specserve.bench.kernels_ops import group_ops
from specserve.bench.kernels_steps import program_of
from specserve.ops.program import Op
from tests.support.native import library
from tests.support.tiny import deploy_tiny, write_tiny

NUM_LAYERS = 3


def native_ops(folder: Path, **options: object) -> list[Op]:
    library()
    program = program_of(deploy_tiny(folder, options).engine)
    assert program is not None
    return program.ops


def by_name(ops: list[Op], shape: StepShape) -> dict[str, Work]:
    """Of one op of each name; those of a name are alike here."""
    works = step_works(ops, shape)
    groups = group_ops(ops)
    for numbers in groups.values():
        assert len({works[n] for n in numbers}) == 1
    return {group.name: works[numbers[0]] for group, numbers in groups.items()}


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        # rows of the panels x inputs x bytes
        (
            {"dtype": "float32"},
            [128 * 64 * 4, 64 * 64 * 4, 192 * 64 * 4, 64 * 96 * 4, 320 * 64 * 4],
        ),
        (
            {"dtype": "bfloat16"},
            [128 * 64 * 2, 64 * 64 * 2, 192 * 64 * 2, 64 * 96 * 2, 320 * 64 * 2],
        ),
        # panels x groups x bytes of a group
        ({"quantization": "int8"}, [8 * 2 * 544, 4 * 2 * 544, 12 * 2 * 544, 4 * 3 * 544, 20 * 2 * 544]),
        ({"quantization": "int4"}, [8 * 2 * 320, 4 * 2 * 320, 12 * 2 * 320, 4 * 3 * 320, 20 * 2 * 320]),
    ],
)
def test_a_matrix_counts_its_packed_bytes_once_and_its_entries_per_row(
    tmp_path: Path, options: dict[str, str], sizes: list[int]
) -> None:
    works = by_name(native_ops(write_tiny(tmp_path), **options), StepShape(5, 8, 2))
    entries = [128 * 64, 64 * 64, 192 * 64, 64 * 96, 320 * 64]
    rows = [3, 3, 3, 3, 2]  # logits of two rows
    names = ["qkv", "output", "gate_up", "down", "head"]
    assert [works[name].num_bytes for name in names] == sizes
    assert [works[name].num_macs for name in names] == [a * b for a, b in zip(entries, rows, strict=True)]


def test_padding_is_read_but_not_multiplied(tmp_path: Path) -> None:
    """Inputs of 48 are two groups of 32; a gate of 72 is five panels, 72 inputs are three groups."""
    folder = write_tiny(tmp_path, hidden_size=48, intermediate_size=72)
    works = by_name(native_ops(folder, quantization="int8"), StepShape(0, 1, 1))
    assert works["gate_up"] == Work(2 * 5 * 2 * 544, 144 * 48)
    assert works["down"] == Work(3 * 3 * 544, 48 * 72)


@pytest.mark.parametrize(("kv_dtype", "element"), [("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_attention_reads_each_visible_slot_once_and_multiplies_per_row(
    tmp_path: Path, kv_dtype: str, element: int
) -> None:
    ops = native_ops(write_tiny(tmp_path), kv_cache_dtype=kv_dtype)
    slot = 2 * 2 * 16 * element  # keys and values of two heads of 16
    seen = 6 + 7 + 8  # keys of the rows at positions 5, 6, 7
    assert by_name(ops, StepShape(5, 8, 3))["attention"] == Work(8 * slot, 2 * 4 * 16 * seen)


def test_a_window_hides_old_slots(tmp_path: Path) -> None:
    ops = native_ops(write_tiny(tmp_path, sliding_window=5), kv_cache_dtype="float32")
    slot = 2 * 2 * 16 * 4
    for shape, slots, seen in (
        (StepShape(20, 22, 2), 6, 5 + 5),  # 16 to 20, and 17 to 21
        (StepShape(3, 6, 3), 6, 4 + 5 + 5),  # 0 to 3, 0 to 4, 1 to 5
        (StepShape(0, 2, 2), 2, 1 + 2),
    ):
        assert by_name(ops, shape)["attention"] == Work(slots * slot, 2 * 4 * 16 * seen)


def test_a_chunk_without_logits_leaves_the_head_alone(tmp_path: Path) -> None:
    works = by_name(native_ops(write_tiny(tmp_path)), StepShape(0, 32, 0))
    assert works["head"] == Work()
    assert works["down"].num_macs == 32 * 64 * 96


def test_an_embedding_counts_the_rows_it_looks_up(tmp_path: Path) -> None:
    ops = native_ops(write_tiny(tmp_path, tie_word_embeddings=True), dtype="float32")
    works = by_name(ops, StepShape(0, 3, 1))
    assert works["embed"] == Work(3 * 64 * 4)
    assert works["head"] == Work(320 * 64 * 4, 320 * 64)


def test_a_step_counts_every_layer(tmp_path: Path) -> None:
    ops = native_ops(write_tiny(tmp_path), dtype="float32")
    layer = 4 * (128 * 64 + 64 * 64 + 192 * 64 + 64 * 96) + 6 * 2 * 2 * 16 * 4
    row = 64 * 4  # of the embedding
    total = sum(step_works(ops, StepShape(5, 6, 1)), Work())
    assert total.num_bytes == NUM_LAYERS * layer + 320 * 64 * 4 + row
