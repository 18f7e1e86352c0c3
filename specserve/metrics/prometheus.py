"""Prometheus series of one engine, in a registry of their own.

metrics = PrometheusMetrics("smollm2-135m", num_spec_tokens=4, max_model_len=8192)
metrics.record(outputs.stats)     # after every step
metrics.render()                  # the body of GET /metrics

Forty series take 0.12 ms to count one step, which stood between two steps of 4 ms. So steps are kept, added
up and counted together: when somebody looks, and every `MOST_KEPT` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from specserve.metrics.added import added
from specserve.metrics.series import Kind, Metric, Values, length_buckets
from specserve.metrics.table import METRICS
from specserve.types import StepStats

Series = Counter | Gauge | Histogram
Apply = Callable[[float], None]
_CACHE_INFO = "vllm:cache_config_info"
_REJECTIONS = "vllm:admission_rejections"
MOST_KEPT = 64  # steps


class PrometheusMetrics:
    """Thread-safe. `num_spec_tokens` None: no speculation, and no series about it.

    `cache_info` becomes the labels of `vllm:cache_config_info`; `lossy_rule` names the verification rule if
    it is a lossy one, and becomes a label of the series about speculation.
    """

    def __init__(
        self,
        model_name: str,
        num_spec_tokens: int | None,
        max_model_len: int,
        *,
        cache_info: Mapping[str, object] | None = None,
        lossy_rule: str | None = None,
        registry: CollectorRegistry | None = None,
        engine: str = "0",
    ) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._model = {"model_name": model_name}
        self._engine = {"engine": engine}
        self._cache_info = {key: str(value) for key, value in (cache_info or {}).items()}
        self._lossy = {} if lossy_rule is None else {"lossy_rule": lossy_rule}
        self._length_buckets = length_buckets(max_model_len)
        self._kept: list[StepStats] = []
        self._lock = Lock()  # of what is kept
        self.registry.register(_CountsFirst(self))
        self._metrics = {m.name: m for m in METRICS if num_spec_tokens is not None or not m.is_speculation}
        self._families = {name: self._family(metric) for name, metric in self._metrics.items()}
        self._apply: dict[tuple[str, Values], Apply] = {}
        positions: dict[Values, float] = {(str(position),): 0.0 for position in range(num_spec_tokens or 0)}
        for metric in self._metrics.values():
            self._begin(metric, positions if "position" in metric.labels else metric.initial)

    def record(self, stats: StepStats) -> None:
        """Count one step, sooner or later."""
        with self._lock:
            self._kept.append(stats)
            if len(self._kept) >= MOST_KEPT:
                self._count_kept()

    def count(self) -> None:
        """Count what was recorded."""
        with self._lock:
            self._count_kept()

    def _count_kept(self) -> None:
        steps, self._kept = self._kept, []
        if not steps:
            return
        total = added(steps)
        for metric in self._metrics.values():
            if metric.read is not None:
                for stats in steps if metric.is_per_step else (total,):
                    for values, number in metric.read(stats):
                        self._child(metric, values)(number)

    def count_rejection(self, reason: str = "queue_full") -> None:
        """Count a request that was refused at admission."""
        self._child(self._metrics[_REJECTIONS], (reason,))(1.0)

    def render(self) -> bytes:
        """All series in Prometheus' text format."""
        return generate_latest(self.registry)

    def _begin(self, metric: Metric, initial: Mapping[Values, float]) -> None:
        for values, number in initial.items():
            apply = self._child(metric, values)
            if metric.kind is not Kind.HISTOGRAM:  # it would count the zero as an observation
                apply(number)

    def _common(self, metric: Metric) -> dict[str, str]:
        """Labels that have one value for the whole engine."""
        labels = self._model | (self._engine if metric.has_engine else {})
        if metric.name == _CACHE_INFO:
            return labels | self._cache_info
        return labels | (self._lossy if metric.is_speculation else {})

    def _family(self, metric: Metric) -> Series:
        labels = (*self._common(metric), *metric.labels)
        if metric.kind is Kind.COUNTER:
            return Counter(metric.name, metric.help, labels, registry=self.registry)
        if metric.kind is Kind.GAUGE:
            return Gauge(metric.name, metric.help, labels, registry=self.registry)
        buckets = metric.buckets or self._length_buckets
        return Histogram(metric.name, metric.help, labels, registry=self.registry, buckets=buckets)

    def _child(self, metric: Metric, values: Values) -> Apply:
        """What takes the numbers of one series; the series exists from the first call on."""
        apply = self._apply.get((metric.name, values))
        if apply is None:
            labels = (*self._common(metric).values(), *values)
            apply = self._apply[metric.name, values] = _taker(self._families[metric.name].labels(*labels))
        return apply


class _CountsFirst(Collector):
    """Registered before all series, so that who reads them through the registry finds every step counted."""

    def __init__(self, metrics: PrometheusMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Family]:
        return []

    def collect(self) -> list[Family]:
        self._metrics.count()
        return []


def _taker(series: Series) -> Apply:
    if isinstance(series, Histogram):
        return series.observe
    return series.set if isinstance(series, Gauge) else series.inc


def http_requests(registry: CollectorRegistry) -> Counter:
    """The counter a server adds its answers to, under the name dashboards know; labels as there."""
    help_text = "Answers by handler, method and class of status (2xx, 4xx, …)."
    return Counter("http_requests", help_text, ["handler", "method", "status"], registry=registry)
