"""The ops for statistics: native sampling where it is installed, fast and with the references' bits."""

from __future__ import annotations

from specserve.ops import Ops, reference_ops
from specserve.ops.native import find_library, make_pool
from specserve.ops.native_sampling import with_native_sampling


def fast_ops() -> Ops:
    library = find_library()
    ops = reference_ops()
    return ops if library is None else with_native_sampling(ops, make_pool(library, 1))
