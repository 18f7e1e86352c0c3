"""A network's ops, recorded once: what a native program is made of.

`Recorder.ops()` is an `Ops` table whose functions compute nothing. Running a network's Python definition on
it leaves a list of records over values; a value is [rows, width] float32. What can be one record is one:
a norm before a matrix, a gate after it, and the addition of its result to a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from torch import Tensor

from specserve.ops import Ops
from specserve.ops.activation import Activation
from specserve.ops.attention import Attention
from specserve.ops.native import PackedWeight
from specserve.types import LayerCache

Kind = Literal["embed", "norm", "linear", "attention", "copy", "add", "gather", "mark"]


@dataclass(frozen=True, slots=True)
class Value:
    """A place in the record: `number` names it, `width` is its number of columns."""

    number: int
    width: int


@dataclass(frozen=True, slots=True)
class Record:
    """One op: it reads `inputs` and writes `output`. When it accumulates, `output` is also read."""

    kind: Kind
    inputs: tuple[Value, ...]
    output: Value
    weight: PackedWeight | None = None
    bias: Tensor | None = None
    norm: Tensor | None = None
    eps: float = 0.0
    scale: float = 1.0
    gate: Activation | None = None
    accumulates: bool = False
    attention: Attention | None = None
    cache: LayerCache | None = None


@dataclass(frozen=True, slots=True)
class _Normed:
    """A norm that waits for its reader, which may take it over."""

    x: Value
    weight: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class _Product:
    """A matrix product that waits for its reader: a gate, an addition, or anything else."""

    record: Record


Symbol: TypeAlias = Value | _Normed | _Product
# A network's definition is typed for tensors; while it is recorded, symbols pass through it.
Traced: TypeAlias = Any


@dataclass(slots=True)
class Recorder:
    """Collects records. Values are written once, except a stream that additions go into in place."""

    records: list[Record] = field(default_factory=list)
    num_values: int = 0

    def ops(self) -> Ops:
        """The functions a network calls; sampling is no part of a network."""
        return Ops(
            plan=lambda _: None,  # type: ignore[arg-type, return-value]
            embed=self._embed,  # type: ignore[arg-type]
            linear=self._linear,  # type: ignore[arg-type]
            rms_norm=self._norm,  # type: ignore[arg-type]
            attention=self._attention,  # type: ignore[arg-type]
            gated=self._gated,  # type: ignore[arg-type]
            add=self._add,  # type: ignore[arg-type]
            keep=self._keep,  # type: ignore[arg-type]
            mark=self._mark,  # type: ignore[arg-type]
            run_program=_not_in_a_network,
            penalize=_not_in_a_network,
            temper=_not_in_a_network,
            truncate=_not_in_a_network,
            draw=_not_in_a_network,
            accept=_not_in_a_network,
            logprobs=_not_in_a_network,
        )

    def settle(self, symbol: Traced) -> Value:
        """Record what still waits; the value that holds the result."""
        if isinstance(symbol, _Product):
            return self._write(symbol.record)
        if isinstance(symbol, _Normed):
            output = self._value(symbol.x.width)
            return self._write(Record("norm", (symbol.x,), output, norm=symbol.weight, eps=symbol.eps))
        if not isinstance(symbol, Value):
            raise TypeError(f"a network did to a recorded value what is no op: {symbol!r}")
        return symbol

    def gather(self, x: Traced) -> Traced:
        """The rows the step wants logits of."""
        source = self.settle(x)
        return self._write(Record("gather", (source,), self._value(source.width)))

    # --- the table ----------------------------------------------------------------------------

    def _embed(self, table: PackedWeight, ids: Any, scale: float) -> Value:
        return self._write(Record("embed", (), self._value(table.num_inputs), weight=table, scale=scale))

    def _norm(self, x: Symbol, weight: Tensor, eps: float) -> _Normed:
        return _Normed(self.settle(x), weight, eps)

    def _linear(self, x: Symbol, weight: PackedWeight, bias: Tensor | None) -> _Product:
        output = self._value(weight.num_outputs)
        if isinstance(x, _Normed):
            record = Record("linear", (x.x,), output, weight=weight, bias=bias, norm=x.weight, eps=x.eps)
        else:
            record = Record("linear", (self.settle(x),), output, weight=weight, bias=bias)
        return _Product(record)

    def _attention(self, qkv: Symbol, attention: Attention, cache: LayerCache, plan: None) -> Value:
        source = self.settle(qkv)
        output = self._value(attention.num_heads * attention.head_size)
        return self._write(Record("attention", (source,), output, attention=attention, cache=cache))

    def _gated(self, gate_up: _Product, kind: Activation) -> _Product:
        record = gate_up.record
        output = replace(record.output, width=record.output.width // 2)
        return _Product(replace(record, output=output, gate=kind))

    def _add(self, x: Value, h: Symbol) -> Value:
        """In place: a residual stream has no other reader than its next addition and what was kept."""
        if isinstance(h, _Product) and h.record.gate is None:
            return self._write(replace(h.record, output=x, accumulates=True))
        if isinstance(h, _Normed):
            return self._write(Record("norm", (h.x,), x, norm=h.weight, eps=h.eps, accumulates=True))
        return self._write(Record("add", (self.settle(h),), x, accumulates=True))

    def _keep(self, x: Value) -> Value:
        return self._write(Record("copy", (x,), self._value(x.width)))

    def _mark(self, x: Symbol) -> Value:
        value = self.settle(x)
        return self._write(Record("mark", (value,), value))

    def _value(self, width: int) -> Value:
        self.num_values += 1
        return Value(self.num_values - 1, width)

    def _write(self, record: Record) -> Value:
        self.records.append(record)
        return record.output


def place(records: Sequence[Record], last: Sequence[Value]) -> dict[int, int]:
    """A buffer for each value, by its number: values that are never needed at the same time share one of
    their width. `last` are read after the program."""
    end = {value.number: len(records) for value in last}
    for at, record in enumerate(records):
        for value in (*record.inputs, record.output):
            end[value.number] = max(end.get(value.number, 0), at)
    free: dict[int, list[int]] = {}
    chosen: dict[int, int] = {}
    num_buffers = 0
    for at, record in enumerate(records):
        if record.output.number not in chosen:
            available = free.setdefault(record.output.width, [])
            if available:
                chosen[record.output.number] = available.pop()
            else:
                chosen[record.output.number] = num_buffers
                num_buffers += 1
        for value in {*record.inputs, record.output}:
            if end[value.number] == at:
                free.setdefault(value.width, []).append(chosen[value.number])
    return chosen


def _not_in_a_network(*_: Any) -> Any:
    raise TypeError("sampling ops cannot be recorded")
