"""Where the engine's thread leaves its counts, and the log line about them every ten seconds."""

from __future__ import annotations

import asyncio
import logging
from threading import Lock
from time import monotonic

from specserve.metrics.prometheus import PrometheusMetrics
from specserve.metrics.stats import PeriodicLog
from specserve.types import StepStats

logger = logging.getLogger(__name__)


class Recorder:
    """`record` is called by the engine's thread after each step, `keep_logging` runs on the event loop.

    `interval` is the log's, in seconds; 0 means no log lines.
    """

    def __init__(self, metrics: PrometheusMetrics, log: PeriodicLog, interval: float) -> None:
        self._metrics = metrics
        self._log = log
        self._interval = interval
        self._lock = Lock()  # of the log; the metrics have their own

    def record(self, stats: StepStats) -> None:
        self._metrics.record(stats)
        with self._lock:
            self._log.add(stats)

    def rejected(self) -> None:
        self._metrics.count_rejection()

    def log_due_lines(self) -> None:
        with self._lock:
            lines = self._log.lines(monotonic())
        for level, line in lines:
            logger.log(level, line)

    async def keep_logging(self) -> None:
        """Until cancelled. Here and not in the engine's thread, which sleeps when there is no work."""
        while self._interval:
            await asyncio.sleep(self._interval)
            self.log_due_lines()
