"""What the machine gives to a pool of threads: the roofs that a step's time is held against.

Bytes read per second from memory, multiplications per second from registers. Machines change their mood, so
a benchmark probes again and again between its measurements.
"""

from __future__ import annotations

from collections.abc import Mapping

from specserve.ops.native import Pool, WeightClass

READ_BYTES = 256 * 2**20  # several times the largest caches of the machines we run on
# csrc/probe.h: `Products`, what each weight class is multiplied with.
_PRODUCTS: Mapping[WeightClass, int] = {"float32": 0, "bfloat16": 0, "int8": 1, "int4": 2}


class Probes:
    """Holds the buffer that is read, `num_bytes` of ordinary pages, as weights lie on them."""

    def __init__(self, pool: Pool, num_bytes: int = READ_BYTES) -> None:
        self._pool = pool
        self._read = pool.library.ReadProbe(num_bytes)

    def read(self) -> float:
        """Bytes per second of a stream from memory, all threads together."""
        rate: float = self._read.measure(self._pool.threads, self._pool.instruction_set)
        return rate

    def multiply(self, weight_class: WeightClass) -> float:
        """Multiplications per second of the instruction that this class is multiplied with, each product
        added to a sum."""
        rate: float = self._pool.library.measure_products(
            self._pool.threads, self._pool.instruction_set, _PRODUCTS[weight_class]
        )
        return rate
