"""A network's matrices one after the other, as models multiply them, or as kernels would that owe nobody an
order of additions (csrc/k_lanes.h): what that order costs. Only `bench kernels` uses it, no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_float

import numpy as np

from specserve.ops.native import Pool
from specserve.ops.program import Op


class Products:
    """Products of made-up rows with the matrices of these `linear` ops: no norms, biases or gates."""

    def __init__(self, pool: Pool, ops: Sequence[Op], max_rows: int, *, k_lanes: bool) -> None:
        self._pool = pool  # the native program holds no reference to its threads' owner
        self._max_rows = max_rows
        self._native = pool.library.Program(pool.threads, pool.instruction_set, max_rows, k_lanes=k_lanes)
        self._inputs: dict[int, int] = {}  # buffers by their width
        self._outputs: dict[int, int] = {}
        for op in ops:
            weight = op.record.weight
            assert weight is not None
            x, y = self._input(weight.num_inputs), self._output(op.part.num_outputs)
            self._native.add_linear(op.part, x, y, 0, 0, 0.0, 0, False, False, weight.activation_bits, 0)
        self._native.set_timed(True)

    def measure(self, num_rows: int) -> list[float]:
        """Seconds of each op with so many rows."""
        assert num_rows <= self._max_rows
        no_step = (0,) * 11  # a product reads nothing of a step but its number of rows
        self._native.run(num_rows, *no_step, 0, self._native.num_ops)
        seconds: list[float] = self._native.op_seconds
        return seconds

    def _input(self, width: int) -> int:
        if width not in self._inputs:
            buffer = self._inputs[width] = self._native.add_buffer(width)
            address = self._native.buffer_address(buffer)
            values = np.ctypeslib.as_array((c_float * (self._max_rows * width)).from_address(address))
            values[:] = np.random.default_rng(0).standard_normal(len(values), np.float32)
        return self._inputs[width]

    def _output(self, width: int) -> int:
        if width not in self._outputs:
            self._outputs[width] = self._native.add_buffer(width)
        return self._outputs[width]
