"""What one step will do: which sequences run, on how many rows, and who samples."""

from __future__ import annotations

from dataclasses import dataclass, field

from specserve.engine.sequence import Sequence
from specserve.types import Draft, DraftProbs, RowRng, SamplingRows


@dataclass(slots=True, eq=False)
class Scheduled:
    """One sequence's share: `num_rows` rows from position `start`, the last `len(draft)` of them guesses.

    It samples when its rows reach the last known token; else it is a prompt chunk (or a recomputation).
    """

    seq: Sequence
    start: int
    num_rows: int
    draft: list[int]
    draft_probs: DraftProbs | None = None  # what `draft` was drawn from
    row: int = 0  # first row in the step's batch

    @property
    def samples(self) -> bool:
        return self.start + self.num_rows - len(self.draft) == len(self.seq.tokens)


@dataclass(slots=True, eq=False)
class Plan:
    items: list[Scheduled] = field(default_factory=list)
    num_trimmed_draft_tokens: int = 0
    num_preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    # Of whoever samples, once the plan is closed.
    sampling_items: list[Scheduled] = field(default_factory=list)
    draft: Draft = field(default_factory=lambda: Draft([]))
    sampling: SamplingRows = field(default_factory=lambda: SamplingRows([]))
    rng: RowRng = field(default_factory=lambda: RowRng([], []))

    def close(self) -> None:
        """Lay the rows out, in order, and put together what verification will see of them: here the caches
        are warm, behind the rows' run they are not."""
        row = 0
        for item in self.items:
            item.row = row
            row += item.num_rows
        items = self.sampling_items = [item for item in self.items if item.samples]
        seqs, probs = [item.seq for item in items], [item.draft_probs for item in items]
        is_drawn = any(own is not None for own in probs)
        self.draft = Draft([item.draft for item in items], probs if is_drawn else None)
        self.sampling = SamplingRows([seq.temperature for seq in seqs])
        self.rng = RowRng([seq.seed for seq in seqs], [len(seq.tokens) for seq in seqs])

    @property
    def num_rows(self) -> int:
        return sum(item.num_rows for item in self.items)
