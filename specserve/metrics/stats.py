"""Steps added up, and the lines a running server writes about them.

    log = PeriodicLog(now=monotonic(), num_spec_tokens=4)
    log.add(outputs.stats)                       # after every step
    for level, line in log.lines(monotonic()):   # empty until ten seconds have passed
        logger.log(level, line)

Counts are disjoint: drafted = accepted + rejected + discarded, where discarded drafts were accepted by the
rule and then cut off by an end token, a stop string or a cap.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass, field

from specserve.types import DraftStats, SpecDecodeMetrics, StepStats

INTERVAL = 10.0  # seconds between two log lines
WINDOW = 1000  # steps with prefix queries that the logged hit rate looks back on


@dataclass(slots=True)
class SpeculationTotals:
    """Verifications added up. Steps without drafts do not count here."""

    num_spec_tokens: int
    num_drafts: int = 0  # verifications, one per sequence and step
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_discarded_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.accepted_per_position = [0] * self.num_spec_tokens

    def add(self, draft: DraftStats) -> None:
        kept, by_rule = draft.accepted, draft.accepted + draft.discarded
        assert 0 <= kept <= by_rule <= draft.drafted <= self.num_spec_tokens, draft
        self.num_drafts += 1
        self.num_draft_tokens += draft.drafted
        self.num_accepted_tokens += kept
        self.num_discarded_tokens += draft.discarded
        for position in range(kept):
            self.accepted_per_position[position] += 1

    @property
    def num_rejected_tokens(self) -> int:
        return self.num_draft_tokens - self.num_accepted_tokens - self.num_discarded_tokens

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per verification, the target's own included; 1.0 before the first one."""
        return 1.0 + (self.num_accepted_tokens / self.num_drafts if self.num_drafts else 0.0)

    @property
    def draft_acceptance_rate(self) -> float:
        """NaN when nothing was drafted."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else math.nan

    @property
    def acceptance_per_position(self) -> list[float]:
        """Share of all verifications that kept the draft at each position, short drafts included."""
        return [count / max(self.num_drafts, 1) for count in self.accepted_per_position]


@dataclass(slots=True)
class EngineStats:
    """Steps added up. Times are seconds; `num_spec_tokens` 0: no speculation."""

    num_spec_tokens: int = 0
    num_steps: int = 0
    num_rows: int = 0
    num_prompt_tokens: int = 0
    num_prompt_tokens_cached: int = 0
    num_generation_tokens: int = 0
    num_emitting: int = 0
    num_emitted: int = 0
    num_preemptions: int = 0
    num_trimmed_draft_tokens: int = 0
    forward_seconds: float = 0.0
    verify_seconds: float = 0.0
    draft_seconds: float = 0.0
    step_seconds: float = 0.0
    speculation: SpeculationTotals = field(init=False)

    def __post_init__(self) -> None:
        self.speculation = SpeculationTotals(self.num_spec_tokens)

    def add(self, stats: StepStats) -> None:
        self.num_steps += 1
        self.num_rows += stats.num_rows
        self.num_prompt_tokens += stats.num_prompt_tokens
        self.num_prompt_tokens_cached += stats.num_prompt_tokens_cached
        self.num_generation_tokens += stats.num_generation_tokens
        self.num_emitting += stats.num_emitting
        self.num_emitted += stats.num_emitted
        self.num_preemptions += stats.num_preemptions
        self.num_trimmed_draft_tokens += stats.num_trimmed_draft_tokens
        self.forward_seconds += stats.forward_seconds
        self.verify_seconds += stats.verify_seconds
        self.draft_seconds += stats.draft_seconds
        self.step_seconds += stats.step_seconds
        for draft in stats.drafts:
            self.speculation.add(draft)

    @property
    def tokens_per_step(self) -> float:
        """Tokens a sequence emits per target step, the prompt's own step excluded; 1.0 before the first."""
        return self.num_emitted / self.num_emitting if self.num_emitting else 1.0


class PrefixWindow:
    """Hit rate of the prefix cache over the most recent steps that asked it, in tokens."""

    def __init__(self, num_steps: int = WINDOW) -> None:
        self._num_steps = num_steps
        self._steps: deque[tuple[int, int]] = deque()
        self._queries = 0
        self._hits = 0

    def add(self, queries: int, hits: int) -> None:
        if not queries:
            return
        if len(self._steps) == self._num_steps:
            old_queries, old_hits = self._steps.popleft()
            self._queries, self._hits = self._queries - old_queries, self._hits - old_hits
        self._steps.append((queries, hits))
        self._queries, self._hits = self._queries + queries, self._hits + hits

    @property
    def hit_rate(self) -> float:
        return self._hits / self._queries if self._queries else 0.0


class PeriodicLog:
    """The lines vLLM writes every ten seconds, from the steps of that time.

    `now` is on any clock that only goes forward, in seconds. `device` is the word before "KV cache usage".
    """

    def __init__(
        self,
        *,
        now: float,
        num_spec_tokens: int | None = None,
        device: str = "CPU",
        engine: int = 0,
        interval: float = INTERVAL,
    ) -> None:
        self._num_spec_tokens = num_spec_tokens or 0
        self._device = device
        self._engine = engine
        self._interval = interval
        self._since = now
        self._was_idle = False
        self._total = EngineStats(self._num_spec_tokens)
        self._prefix = PrefixWindow()
        self._last = StepStats()

    def add(self, stats: StepStats) -> None:
        self._total.add(stats)
        self._prefix.add(stats.prefix_queries, stats.prefix_hits)
        self._last = stats

    def lines(self, now: float) -> list[tuple[int, str]]:
        """What is due at `now`: (level of `logging`, line), the general line first; counts begin anew.

        The general line is at debug level when nothing happened for two intervals in a row.
        """
        seconds = now - self._since
        if seconds < self._interval:
            return []
        total, self._total, self._since = self._total, EngineStats(self._num_spec_tokens), now
        is_idle = not (total.num_prompt_tokens or total.num_generation_tokens)
        level = logging.DEBUG if is_idle and self._was_idle else logging.INFO
        self._was_idle = is_idle
        due = [(level, self._general_line(total, seconds))]
        if total.speculation.num_drafts:
            due.append((logging.INFO, speculation_line(total.speculation, seconds)))
        return due

    def _general_line(self, total: EngineStats, seconds: float) -> str:
        preemptions = f"Preemptions: {total.num_preemptions}, " if total.num_preemptions else ""
        return (
            f"Engine {self._engine:03d}: "
            f"Avg prompt throughput: {total.num_prompt_tokens / seconds:.1f} tokens/s, "
            f"Avg generation throughput: {total.num_generation_tokens / seconds:.1f} tokens/s, "
            f"Running: {self._last.num_running} reqs, Waiting: {self._last.num_waiting} reqs, {preemptions}"
            f"{self._device} KV cache usage: {self._last.kv_cache_usage * 100:.1f}%, "
            f"Prefix cache hit rate: {self._prefix.hit_rate * 100:.1f}%"
        )


def speculation_line(total: SpeculationTotals, seconds: float) -> str:
    """vLLM's line about the verifications of the last `seconds`."""
    positions = ", ".join(f"{rate:.3f}" for rate in total.acceptance_per_position)
    return (
        f"SpecDecoding metrics: Mean acceptance length: {total.mean_acceptance_length:.2f}, "
        f"Accepted throughput: {total.num_accepted_tokens / seconds:.2f} tokens/s, "
        f"Drafted throughput: {total.num_draft_tokens / seconds:.2f} tokens/s, "
        f"Accepted: {total.num_accepted_tokens} tokens, Drafted: {total.num_draft_tokens} tokens, "
        f"Per-position acceptance rate: {positions}, "
        f"Avg Draft acceptance rate: {total.draft_acceptance_rate * 100:.1f}%"
    )


def request_line(metrics: SpecDecodeMetrics) -> str:
    """llama.cpp's line about one finished request."""
    return (
        f"draft acceptance rate = {metrics.draft_acceptance_rate:.5f} "
        f"({metrics.num_accepted_draft_tokens:5d} accepted / {metrics.num_draft_tokens:5d} generated)"
    )
