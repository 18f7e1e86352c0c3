"""When requests are sent: gaps drawn from a gamma distribution, whose shape is the burstiness.

Shape 1 is a Poisson process; a smaller one comes in bursts, a larger one evenly.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random


def arrival_times(
    count: int,
    rate: float,
    *,
    burstiness: float = 1.0,
    seed: int = 0,
    ramp: tuple[str, float, float] | None = None,
) -> list[float]:
    """Seconds from the beginning, ascending; all 0 at an infinite rate.

    `ramp` ("linear" or "exponential", first rate, last rate) replaces `rate`. The gaps are stretched so that
    the last request comes when it would with even gaps, as vLLM does: the rate is what was asked for, also
    with few requests.
    """
    rates = [rate] * count if ramp is None else ramped(count, *ramp)
    if ramp is None and rate == float("inf"):
        return [0.0] * count
    random = Random(seed)
    gaps = [random.gammavariate(burstiness, 1 / (burstiness * own)) for own in rates]
    even = sum(1 / own for own in rates)
    stretch = even / sum(gaps) if ramp is None and gaps else 1.0
    return [at * stretch for at in accumulate(gaps)]


def ramped(count: int, strategy: str, first: float, last: float) -> list[float]:
    """Rate at each request, from the first's to the last's."""
    shares = [number / max(count - 1, 1) for number in range(count)]
    if strategy == "linear":
        return [first + (last - first) * share for share in shares]
    return [first * (last / first) ** share for share in shares]
