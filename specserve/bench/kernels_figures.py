"""From samples to figures: medians, rates, and shares of what the machine gives.

roofline_share = (weight + KV bytes) / (read bandwidth * wall time of the step, host included)
multiply_share = (sum over classes of multiplications / their peak) / wall time of the step
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from specserve.bench.kernels_counts import Work, input_bits, part_class, step_works
from specserve.bench.kernels_ops import group_ops
from specserve.bench.kernels_steps import PEAKS, Case, Measured, Sample
from specserve.bench.report import middle
from specserve.ops.native import CLASSES, WeightClass
from specserve.ops.program import Op

Figures = dict[str, Any]


def document(measured: Measured, ops: Sequence[Op]) -> Figures:
    """All figures by the names of their file. Without native `ops`, only times of steps."""
    roofs = _Roofs(measured)
    works = {case: _works(ops, samples[0]) for case, samples in measured.steps.items()}
    steps = {case: _step(samples, works[case], roofs, ops) for case, samples in measured.steps.items()}
    for case, samples in measured.timed.items():
        if samples:
            steps[case]["ops_ms"], steps[case]["ops_ms_spread"] = middle([1e3 * sum(s.ops) for s in samples])
    rows = {str(case.num_rows): figures for case, figures in steps.items() if not case.is_prompt}
    first = rows[min(rows, key=int)]
    prompts = [{"num_tokens": case.num_rows, **steps[case]} for case in steps if case.is_prompt]
    return {
        "rows": {name: figures["target_ms"] for name, figures in rows.items()},
        **{key: first[key] for key in ("step_ms", "host_ms", "roofline_share")},
        **roofs.figures(),
        "steps": rows,
        "prompt": _with_rate(prompts[0]) if prompts else None,
        "ops": _ops(measured, ops, works, roofs),
    }


def weight_classes(ops: Sequence[Op]) -> Figures:
    """What a step's matrices are made of, the class with most bytes first."""
    matrices = [op for op in ops if op.record.kind == "linear"]
    num_bytes: dict[WeightClass, int] = {}
    bits: dict[WeightClass, set[int]] = {}
    for op in matrices:
        kind, weight = part_class(op.part), op.record.weight
        assert weight is not None
        num_bytes[kind] = num_bytes.get(kind, 0) + op.part.num_bytes
        bits.setdefault(kind, set()).update({input_bits(weight, op.part) or 32})
    order = sorted(num_bytes, key=lambda kind: num_bytes[kind], reverse=True)
    return {
        "weight_class": "+".join(order),
        "weight_bytes": {kind: num_bytes[kind] for kind in order},
        "activation_bits": {kind: sorted(bits[kind]) for kind in order},
    }


class _Roofs:
    """Medians of what the machine gave in this run; None where the kernels are not native."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self.read = median(measured.read) if measured.read else None
        peaks = {kind: median(rates) for kind, rates in measured.multiply.items() if rates}
        self.peaks: Mapping[WeightClass, float] = peaks and {**peaks, "bfloat16": peaks["float32"]}

    def figures(self) -> Figures:
        if self.read is None:
            return {"read_gb_per_s": None, "multiply_gmac_per_s": None}
        spread = middle(self._measured.read)[1]
        return {
            "read_gb_per_s": self.read / 1e9,
            "read_gb_per_s_spread": [rate / 1e9 for rate in spread],
            "multiply_gmac_per_s": {kind: self.peaks[kind] / 1e9 for kind in PEAKS},
        }

    def shares(self, works: Mapping[WeightClass, Work], seconds: float) -> Figures:
        """Rates of some work by class, and what part of `seconds` it would need at the roof."""
        if self.read is None:
            return {"gb_per_s": None, "gmac_per_s": None, "roofline_share": None, "multiply_share": None}
        total = sum(works.values(), Work())
        at_peak = sum(work.num_macs / self.peaks[kind] for kind, work in works.items())
        return {
            "gb_per_s": total.num_bytes / seconds / 1e9,
            "gmac_per_s": total.num_macs / seconds / 1e9,
            "roofline_share": total.num_bytes / self.read / seconds,
            "multiply_share": at_peak / seconds,
        }


def _works(ops: Sequence[Op], sample: Sample) -> list[Work]:
    """Per op, over all steps of the sample."""
    steps = [step_works(ops, shape) for shape in sample.shapes]
    return [sum(works, Work()) for works in zip(*steps, strict=True)]


def _step(samples: Sequence[Sample], works: Sequence[Work], roofs: _Roofs, ops: Sequence[Op]) -> Figures:
    parts: Mapping[str, Callable[[Sample], float]] = {
        "target_ms": lambda sample: sample.target,
        "step_ms": lambda sample: sample.step,
        "native_ms" if ops else "eager_ms": lambda sample: sample.network,
        "host_ms": lambda sample: sample.host,
    }
    figures: Figures = {}
    for name, part in parts.items():
        figures[name], figures[f"{name}_spread"] = middle([1e3 * part(sample) for sample in samples])
    total = sum(works, Work())
    figures |= asdict(total) if ops else {"num_bytes": None, "num_macs": None}
    return figures | roofs.shares(_by_class(ops, works), figures["step_ms"] / 1e3)


def _with_rate(prompt: Figures) -> Figures:
    return {**prompt, "tokens_per_s": 1e3 * prompt["num_tokens"] / prompt["step_ms"]}


def _ops(
    measured: Measured, ops: Sequence[Op], works: Mapping[Case, Sequence[Work]], roofs: _Roofs
) -> list[Figures]:
    """One entry per group of alike ops; its figures are of all of them together."""
    entries = []
    for group, numbers in group_ops(ops).items():
        entry: Figures = {"op": group.name, "num_ops": len(numbers), **asdict(group), "rows": {}}
        del entry["name"]
        for case, samples in measured.timed.items():
            figures = _op(
                [ops[n] for n in numbers],
                [works[case][n] for n in numbers],
                [sum(sample.ops[n] for n in numbers) for sample in samples],
                roofs,
            )
            if case.is_prompt:
                entry["prompt"] = figures
            else:
                entry["rows"][str(case.num_rows)] = figures
        entries.append(entry)
    return entries


def _op(ops: Sequence[Op], works: Sequence[Work], seconds: Sequence[float], roofs: _Roofs) -> Figures:
    middle_seconds, spread = middle(seconds)
    return {
        "ms": 1e3 * middle_seconds,
        "ms_spread": [1e3 * value for value in spread],
        **asdict(sum(works, Work())),
        **roofs.shares(_by_class(ops, works), middle_seconds),
    }


def _by_class(ops: Sequence[Op], works: Sequence[Work]) -> dict[WeightClass, Work]:
    """Work by what it is multiplied with; attention and norms compute in float32."""
    found: dict[WeightClass, Work] = dict.fromkeys(CLASSES, Work())
    for op, work in zip(ops, works, strict=True):
        kind: WeightClass = "float32" if op.part is None else part_class(op.part)
        found[kind] += work
    return found
