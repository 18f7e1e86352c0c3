"""What a metric is: declared once, from which its Prometheus object and its row in the docs are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from specserve.types import FinishedStats, StepStats

Values = tuple[str, ...]  # of a metric's own labels
Read = Callable[[StepStats], Iterable[tuple[Values, float]]]


class Kind(StrEnum):
    """A counter adds what it reads, a gauge takes it, a histogram observes each of it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """`labels` come besides `model_name` and `engine`; `initial` says which of their values exist from the
    start, and with what number. It is read from several steps added up, unless `is_per_step`.

    `read` None: set from outside a step, or for ever what it is initially. `buckets` are upper limits; none
    for a histogram of lengths, whose buckets depend on the context length.
    """

    name: str
    kind: Kind
    help: str
    read: Read | None = None
    labels: tuple[str, ...] = ()
    initial: Mapping[Values, float] = field(default_factory=lambda: {(): 0.0})
    buckets: tuple[float, ...] = ()
    has_engine: bool = True
    is_speculation: bool = False  # exists only with a speculative configuration
    is_per_step: bool = False


def limits(text: str) -> tuple[float, ...]:
    """Upper limits of buckets, as the reference lists them."""
    return tuple(map(float, text.split()))


def length_buckets(longest: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, … as far as they are at most `longest`."""
    steps = (digit * 10**power for power in range(len(str(longest))) for digit in (1, 2, 5))
    return tuple(float(step) for step in steps if step <= longest)


def one(read: Callable[[StepStats], float]) -> Read:
    """One number per step, no labels."""
    return lambda stats: (((), read(stats)),)


def each(read: Callable[[StepStats], Iterable[float]]) -> Read:
    """Any count of numbers per step, no labels."""
    return lambda stats: [((), value) for value in read(stats)]


def of_finished(read: Callable[[FinishedStats], float]) -> Read:
    """One number for each sequence that finished."""
    return each(lambda stats: [read(sequence) for sequence in stats.finished])


def of_answered(read: Callable[[FinishedStats], float]) -> Read:
    """One number for each finished sequence that got a token; without one there are no such times."""
    return each(lambda stats: [read(s) for s in stats.finished if s.num_generation_tokens > 0])
