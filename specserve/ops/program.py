"""A recorded network on the native side: one call per step, the interpreter lock released.

The caches are cold when a call returns: the weights went through them. What Python does per step then takes
ten times as long as in a loop of its own, PyTorch's small ops (20 to 50 us) most of all; `array` takes 3. And
these ops release the interpreter lock: whoever waits for it takes it, and a step begins later by as much.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from ctypes import c_float
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specserve.ops.attention import Rope
from specserve.ops.native import Pool
from specserve.ops.record import Record, Value, place
from specserve.ops.rope import angles
from specserve.types import Batch

TILE = 8  # slots per key tile; a page holds whole tiles
_GATES = {None: 0, "silu": 1, "gelu_tanh": 2}
_CACHE_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_rows` in one step, `max_positions` the longest context, `page_size` a multiple of `TILE`."""

    max_rows: int
    max_positions: int
    page_size: int


@dataclass(frozen=True, slots=True)
class Op:
    """One native op: a record, or of a record whose matrix has several parts, one of them. `part` is the
    native matrix, None where the op has none."""

    record: Record
    part: Any


@dataclass(frozen=True, slots=True)
class _Step:
    batch: Batch
    starts: array[int]  # int32, as the next
    tables: array[int]  # [num_sequences, table_width]
    table_width: int


class _Lent:
    """Memory that is lent again and again, and the tensors on it, by their number of rows: making one takes
    50 us behind a native call."""

    def __init__(self, width: int) -> None:
        self._memory = torch.empty(0, width)
        self._tensors: dict[int, Tensor] = {}

    def rows(self, num_rows: int) -> Tensor:
        """[num_rows, width] float32, and whatever the last borrower left there."""
        tensor = self._tensors.get(num_rows)
        if tensor is None:
            capacity, width = self._memory.shape
            if num_rows > capacity:
                self._memory = torch.empty(max(num_rows, 2 * capacity), width)
                self._tensors.clear()
            tensor = self._tensors[num_rows] = self._memory[:num_rows]
        return tensor


class Program:
    """`body` runs on all rows, `head` on the rows whose logits are wanted; `kept` can be read afterwards.

    With `at_marks` the program is cut at its marks, and there the function may change the marked values
    [num_rows, width] float32 in place. Without, marks cost nothing.
    """

    def __init__(
        self,
        pool: Pool,
        body: Sequence[Record],
        head: Sequence[Record],
        kept: Sequence[Value],
        limits: Limits,
        run_program: Callable[..., float],
        at_marks: Callable[[Tensor], None] | None = None,
    ) -> None:
        self.pool = pool
        self.ops: list[Op] = []  # as they are run
        self._native = pool.library.Program(pool.threads, pool.instruction_set, limits.max_rows)
        self._limits = limits
        self._run_program = run_program
        self._at_marks = at_marks
        self._marks: list[tuple[int, Value]] = []  # number of ops before it, and what it marks
        self._alive: list[object] = []  # whatever the native side holds addresses of
        self._angles: dict[int, tuple[Tensor, Tensor]] = {}
        records = [*body, *head]
        self._places = place(records, [*kept, *head[0].inputs])
        self._buffers = self._add_buffers(records)
        for record in body:
            self._add(record, is_last=False)
        self._num_body_ops = self._native.num_ops
        for record in head:
            self._add(record, is_last=record is head[-1])
        self._kept = [(self._data(value), value.width) for value in kept]
        self._vocab_size = records[-1].output.width
        self._logits = _Lent(self._vocab_size)
        self._last: _Step | None = None
        self.seconds = 0.0  # inside native calls, of all steps

    # --- a step -------------------------------------------------------------------------------

    def run(self, batch: Batch, wanted: Sequence[int]) -> Tensor:
        """Logits [R, V] float32 of the wanted rows, in memory that the next step's are written to."""
        width = max(map(len, batch.block_tables), default=0)
        tables = array("i")
        for pages in batch.block_tables:
            tables.extend(pages)
            tables.extend([0] * (width - len(pages)))
        self._last = _Step(batch, array("i", batch.starts), tables, width)
        logits = self._logits.rows(len(wanted))
        self._run(self._last, wanted, logits, 0)
        return logits

    def logits_at(self, wanted: Sequence[int]) -> Tensor:
        """Logits [R, V] float32 of further rows of the last step: a new tensor each time."""
        if self._last is None:
            raise RuntimeError("no step has run yet")
        logits = torch.empty(len(wanted), self._vocab_size)
        self._run(self._last, wanted, logits, self._num_body_ops)
        return logits

    def kept(self) -> Tensor | None:
        """Copies of the last step's kept values side by side: [num_rows, sum of widths]."""
        if not self._kept or self._last is None:
            return None
        num_rows = len(self._last.batch.ids)
        return torch.cat([_view(address, num_rows, width) for address, width in self._kept], dim=1)

    def set_timed(self, is_timed: bool) -> None:
        self._native.set_timed(is_timed)

    @property
    def op_seconds(self) -> list[float]:
        """Wall time of each of `ops` in the last step, while timed: what its slowest thread took."""
        seconds: list[float] = self._native.op_seconds
        return seconds

    def _run(self, step: _Step, wanted: Sequence[int], logits: Tensor, first: int) -> None:
        chosen = array("q", wanted)
        if self._at_marks is not None:
            for last, value in self._marks:
                if first <= last:
                    self._run_ops(step, chosen, logits, first, last)
                    self._at_marks(_view(self._data(value), len(step.batch.ids), value.width))
                    first = last
        self._run_ops(step, chosen, logits, first, self._native.num_ops)

    def _run_ops(self, step: _Step, wanted: array[int], logits: Tensor, first: int, last: int) -> None:
        batch, limits = step.batch, step.batch.key_limits
        self.seconds += self._run_program(
            self._native,
            len(batch.ids),
            batch.ids.buffer_info()[0],
            batch.positions.buffer_info()[0],
            batch.slots.buffer_info()[0],
            0 if limits is None else limits.buffer_info()[0],
            len(batch.block_tables),
            step.starts.buffer_info()[0],
            step.tables.buffer_info()[0],
            step.table_width,
            len(wanted),
            wanted.buffer_info()[0],
            logits.data_ptr(),
            first,
            last,
        )

    # --- building -----------------------------------------------------------------------------

    def _add_buffers(self, records: Sequence[Record]) -> dict[int, int]:
        """Native buffers by place; the last output is the step's own logits and needs none."""
        widths = {self._places[r.output.number]: r.output.width for r in records[:-1]}
        return {number: self._native.add_buffer(width) for number, width in sorted(widths.items())}

    def _buffer(self, value: Value) -> int:
        return self._buffers[self._places[value.number]]

    def _data(self, value: Value) -> int:
        address: int = self._native.buffer_address(self._buffer(value))
        return address

    def _add(self, record: Record, *, is_last: bool) -> None:
        self._alive.append(record)
        if record.kind != "mark":
            parts = record.weight.parts if record.weight is not None else (None,)
            self.ops += [Op(record, part) for part in parts]
        add = {
            "embed": self._add_embed,
            "norm": self._add_norm,
            "linear": self._add_linear,
            "attention": self._add_attention,
            "copy": self._add_copy,
            "add": self._add_add,
            "mark": self._add_mark,
            "gather": self._add_gather,
        }[record.kind]
        add(record, is_last)

    def _add_embed(self, record: Record, is_last: bool) -> None:
        assert record.weight is not None
        self._native.add_embed(record.weight.parts[0], record.scale, self._buffer(record.output))

    def _add_norm(self, record: Record, is_last: bool) -> None:
        self._native.add_norm(
            self._buffer(record.inputs[0]),
            self._address(record.norm),
            record.eps,
            self._buffer(record.output),
            record.accumulates,
        )

    def _add_copy(self, record: Record, is_last: bool) -> None:
        self._native.add_copy(self._buffer(record.inputs[0]), self._buffer(record.output))

    def _add_add(self, record: Record, is_last: bool) -> None:
        self._native.add_add(self._buffer(record.inputs[0]), self._buffer(record.output))

    def _add_mark(self, record: Record, is_last: bool) -> None:
        self._marks.append((self._native.num_ops, record.output))

    def _add_gather(self, record: Record, is_last: bool) -> None:
        self._native.add_gather(self._buffer(record.inputs[0]), self._buffer(record.output))

    def _add_linear(self, record: Record, is_last: bool) -> None:
        weight = record.weight
        assert weight is not None
        x, column = self._buffer(record.inputs[0]), 0
        bias = record.bias
        for part in weight.parts:
            self._native.add_linear(
                part,
                x,
                x if is_last else self._buffer(record.output),
                self._address(None if bias is None else bias[column:]),
                self._address(record.norm),
                record.eps,
                _GATES[record.gate],
                record.accumulates,
                is_last,
                weight.activation_bits,
                column,
            )
            column += part.num_outputs

    def _add_attention(self, record: Record, is_last: bool) -> None:
        a, cache = record.attention, record.cache
        assert a is not None
        assert cache is not None
        cosine, sine = self._table(a.rope)
        self._native.add_attention(
            self._buffer(record.inputs[0]),
            self._buffer(record.output),
            a.num_heads,
            a.num_kv_heads,
            a.head_size,
            a.scale,
            a.window or 0,
            self._address(a.query_norm),
            self._address(a.key_norm),
            a.norm_eps,
            cosine.data_ptr(),
            sine.data_ptr(),
            cosine.shape[1],
            cache.keys.data_ptr(),
            cache.values.data_ptr(),
            _CACHE_TYPES[cache.keys.dtype],
            self._limits.page_size,
        )

    def _table(self, rope: Rope) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every position, [max_positions, r]: layers of one rope share them."""
        if id(rope) not in self._angles:
            positions = torch.arange(self._limits.max_positions)
            self._angles[id(rope)] = angles(positions, rope.inverse_frequencies, rope.factor)
        return self._angles[id(rope)]

    def _address(self, tensor: Tensor | None) -> int:
        if tensor is None:
            return 0
        kept = tensor.float().contiguous()
        self._alive.append(kept)
        return kept.data_ptr()


def _view(address: int, num_rows: int, width: int) -> Tensor:
    """A native buffer's first rows, without a copy."""
    buffer = (c_float * (num_rows * width)).from_address(address)
    return torch.from_numpy(np.ctypeslib.as_array(buffer).reshape(num_rows, width))
