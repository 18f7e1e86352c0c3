"""Counts of speculation: of one verification, of one source of guesses, of one request."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DraftStats:
    """One verification: drafted = accepted + rejected + discarded (accepted by the rule, then cut off).

    `source` names who guessed, where there are several.
    """

    drafted: int
    accepted: int
    discarded: int
    source: str | None = None


@dataclass(slots=True)
class SourceCounts:
    """Of the verifications whose guesses came from one source."""

    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0

    def add(self, stats: DraftStats) -> None:
        self.num_spec_steps += 1
        self.num_draft_tokens += stats.drafted
        self.num_accepted_draft_tokens += stats.accepted

    def include(self, other: SourceCounts) -> None:
        self.num_spec_steps += other.num_spec_steps
        self.num_draft_tokens += other.num_draft_tokens
        self.num_accepted_draft_tokens += other.num_accepted_draft_tokens


@dataclass(slots=True)
class SpecDecodeMetrics:
    """One request's speculation, counted as vLLM's per-request metrics; steps without drafts are left out.

    `acceptance_histogram[j]` counts verification steps whose rule accepted exactly j drafts. Counted
    before the cut by an end token, stop string or cap; `num_discarded_draft_tokens` says how many of
    those the cut took away again, so kept = accepted. `num_spec_tokens` is the most guesses per step this
    request allowed, `method` the drafter that made them, None at 0. `by_source` has the same counts for each
    source of guesses that was used.
    """

    num_spec_tokens: int
    method: str | None = None
    detailed: bool = False
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    num_discarded_draft_tokens: int = 0
    acceptance_histogram: list[int] = field(default_factory=list)
    acceptance_histogram_by_draft_length: dict[int, list[int]] = field(default_factory=dict)
    per_step_accepted: list[int] = field(default_factory=list)
    per_step_drafted: list[int] = field(default_factory=list)
    by_source: dict[str, SourceCounts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.acceptance_histogram = [0] * (self.num_spec_tokens + 1)

    def record(self, stats: DraftStats) -> None:
        """One verification step."""
        drafted, by_rule = stats.drafted, stats.accepted + stats.discarded
        self.num_draft_tokens += drafted
        self.num_accepted_draft_tokens += stats.accepted
        self.num_discarded_draft_tokens += stats.discarded
        if stats.source is not None:
            self.by_source.setdefault(stats.source, SourceCounts()).add(stats)
        self.acceptance_histogram[by_rule] += 1
        histogram = self.acceptance_histogram_by_draft_length.setdefault(drafted, [0] * (drafted + 1))
        histogram[by_rule] += 1
        if self.detailed:
            self.per_step_accepted.append(by_rule)
            self.per_step_drafted.append(drafted)

    @property
    def num_spec_steps(self) -> int:
        return sum(self.acceptance_histogram)

    @property
    def mean_acceptance_length(self) -> float:
        steps = self.num_spec_steps
        return 1.0 + self.num_accepted_draft_tokens / steps if steps else 1.0

    @property
    def draft_acceptance_rate(self) -> float:
        return self.num_accepted_draft_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0
