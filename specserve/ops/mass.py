"""exp(logit - best) in whole multiples of 2^-40: how likely ids are against the best one, exact to add up.

Whole numbers have one sum, whatever the order, the lanes or the threads; and the exponential is made of
exactly rounded operations. So a top-p set and a log-probability have one value on every machine. A second
implementation must follow `masses` operation by operation, without fused multiply-add.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Masses = NDArray[np.int64]

UNIT = 2.0**-40  # small enough that what 2^18 ids lose to rounding is below the float32 of the sum

_DEPTH = np.float32(-29)  # e^-29 is less than half a unit
_LOG2_E = np.float32(1 / math.log(2))
_SERIES = [np.float32(math.log(2) ** n / math.factorial(n)) for n in range(6, -1, -1)]  # of 2^r


def masses(logits: Floats, best: np.float32) -> Masses:
    """Of logits that are at most `best` and not NaN. The relative error is below 3e-7 + 1e-7 (best - logit),
    or the error half a unit."""
    y = np.maximum(logits - best, _DEPTH) * _LOG2_E
    n = np.rint(y)
    r = y - n
    p = _SERIES[0] * r + _SERIES[1]
    for coefficient in _SERIES[2:]:
        p = p * r + coefficient
    scaled = np.ldexp(p, n.astype(np.int32)).astype(np.float64)
    units: Masses = np.rint(scaled / UNIT).astype(np.int64)
    return units


def log_total(logits: Floats, best: np.float32) -> float:
    """ln of the sum of exp(logit) over `logits`, whose largest is `best`."""
    return float(best) + math.log(int(masses(logits, best).sum()) * UNIT)
