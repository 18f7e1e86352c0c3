"""What exactness costs: a model's matrices in the one order of additions that keeps a row's bits, and the
same with several sums per output, in turn, by weight class and number of rows.

cost = exact time / time with several sums - 1, pair by pair
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specserve.bench.kernels_counts import part_class
from specserve.bench.kernels_steps import in_turn
from specserve.bench.report import middle
from specserve.ops.k_lanes import Products
from specserve.ops.native import CLASSES, Pool, WeightClass
from specserve.ops.program import Op

ROWS = (1, 8)
PAIRS = 4  # per round

Figures = dict[str, Any]


class OrderMeter:
    """Holds the model's matrices, not copies. Every measurement goes through all of them, so that none is
    found in a cache where a step would not find it. Samples are pairs of seconds, exact first."""

    def __init__(self, pool: Pool, ops: Sequence[Op]) -> None:
        matrices = [op for op in ops if op.record.kind == "linear"]
        self._kinds = [part_class(op.part) for op in matrices]
        self._exact = Products(pool, matrices, max(ROWS), k_lanes=False)
        self._lanes = Products(pool, matrices, max(ROWS), k_lanes=True)
        present = [kind for kind in CLASSES if kind in self._kinds]
        self._samples: dict[tuple[WeightClass, int], list[tuple[float, float]]] = {
            (kind, num_rows): [] for kind in present for num_rows in ROWS
        }

    def measure(self, *, keeps: bool) -> None:
        """One round; a warm-up keeps nothing."""
        for num_rows in ROWS:
            for number in range(PAIRS):
                first, second = in_turn((self._exact, self._lanes), number)
                found = in_turn((first.measure(num_rows), second.measure(num_rows)), number)
                exact, lanes = map(self._by_class, found)
                for kind in exact if keeps else ():
                    self._samples[kind, num_rows].append((exact[kind], lanes[kind]))

    def _by_class(self, seconds: Sequence[float]) -> dict[WeightClass, float]:
        total: dict[WeightClass, float] = {}
        for kind, value in zip(self._kinds, seconds, strict=True):
            total[kind] = total.get(kind, 0.0) + value
        return total

    def figures(self) -> list[Figures]:
        return [
            {"weight_class": kind, "rows": num_rows, **cost_figures(samples)}
            for (kind, num_rows), samples in self._samples.items()
        ]


def cost_figures(samples: Sequence[tuple[float, float]]) -> Figures:
    """Medians, quartiles as `..._spread`; `cost` is a share: 0.05 is 5 % slower than with several sums."""
    figures: Figures = {}
    for name, values in (
        ("exact_ms", [1e3 * exact for exact, _ in samples]),
        ("k_lanes_ms", [1e3 * lanes for _, lanes in samples]),
        ("cost", [exact / lanes - 1.0 for exact, lanes in samples]),
    ):
        figures[name], figures[f"{name}_spread"] = middle(values)
    return figures
