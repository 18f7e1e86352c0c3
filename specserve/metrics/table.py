"""Every metric once: its name, kind, labels, meaning, and how it is read from a step.

The Prometheus objects (`prometheus`) and the page docs/metrics.md (`markdown`) both come from `METRICS`.
Names in `vllm:` mean what they mean in vLLM, so that its dashboards work; ours begin with `specserve:`.
"""

from __future__ import annotations

from specserve.metrics.requests import LATENCIES, LENGTHS
from specserve.metrics.series import Metric
from specserve.metrics.serving import STATE, TOKENS
from specserve.metrics.speculation import SPECULATION, TIME

METRICS = (*STATE, *TOKENS, *LATENCIES, *LENGTHS, *SPECULATION, *TIME)


def markdown() -> str:
    """The page docs/metrics.md."""
    rows = [f"| `{metric.name}` | {metric.kind} | {_labels(metric)} | {metric.help} |" for metric in METRICS]
    return "\n".join([_HEAD, *rows, ""])


def _labels(metric: Metric) -> str:
    names = ", ".join(f"`{label}`" for label in metric.labels)
    values = ", ".join(value for values in metric.initial for value in values)
    return f"{names}: {values}" if values else names


_HEAD = """\
# Metrics

`GET /metrics` answers in Prometheus' text format. This page is generated: edit `specserve/metrics/table.py`.

Every series carries `model_name` and, unless it says otherwise, `engine` (always "0"); the third column lists
the labels besides these. The name of a counter ends in `_total` there. Times are in seconds. The series
with `spec_decode` exist only with a speculative configuration; under a lossy verification rule they carry
its name as `lossy_rule`. Histograms of requests observe each of a request's n sequences when it finishes.

| Metric | Type | Labels | Meaning |
|---|---|---|---|"""
