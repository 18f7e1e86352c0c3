"""The probes run on every instruction set and thread count; how fast is the machine's business."""

from __future__ import annotations

import math

import pytest

from specserve.ops.native import CLASSES, make_pool
from specserve.ops.probe import Probes
from tests.support.native import library

SMALL = 3 * 2**20


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("instruction_set", [None, "portable"])
def test_rates_are_positive_numbers(instruction_set: str | None, num_threads: int) -> None:
    probes = Probes(make_pool(library(), num_threads, instruction_set), SMALL)
    for rate in (probes.read(), *map(probes.multiply, CLASSES)):
        assert 0.0 < rate < math.inf


@pytest.mark.parametrize("num_bytes", [1, 2**20, 2**20 + 1])
def test_a_buffer_is_read_in_whole_pieces(num_bytes: int) -> None:
    assert Probes(make_pool(library(), 2), num_bytes).read() > 0.0  # it checks the sum of what it read


def test_kernels_without_a_probe_are_named() -> None:
    pool = make_pool(library(), 1, "abacus")
    with pytest.raises(ValueError, match="no probes for abacus"):
        Probes(pool, SMALL).read()
