"""Several steps as one: what the series are read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from specserve.types import StepStats

_GAUGES = frozenset({"num_running", "num_waiting", "kv_cache_usage"})
_LISTS = tuple(f.name for f in fields(StepStats) if f.name not in _GAUGES and f.type.startswith("list"))
_COUNTS = tuple(f.name for f in fields(StepStats) if f.name not in _GAUGES and f.name not in _LISTS)


def added(steps: Sequence[StepStats]) -> StepStats:
    """Counts and times are sums, lists follow one another, gauges are the last step's. At least one step."""
    total = StepStats()
    for name in _COUNTS:
        setattr(total, name, sum([getattr(stats, name) for stats in steps]))
    for name in _LISTS:
        setattr(total, name, [entry for stats in steps for entry in getattr(stats, name)])
    for name in _GAUGES:
        setattr(total, name, getattr(steps[-1], name))
    return total
