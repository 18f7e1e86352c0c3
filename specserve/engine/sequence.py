"""One sequence: its true tokens, its guesses, how far the cache is true.

    tokens    [ prompt ............ | output ....... ]     only true tokens
    computed  ^------- rows true ---------^                 never counts a guess
    draft                                             [...]  guesses, here and nowhere else

Between steps of a decoding sequence `computed == len(tokens) - 1`: the last token is known, its row not
yet. What the pages hold beyond `computed` is garbage by definition, so a rejection has nothing to undo.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specserve.kv.pages import BlockTable
from specserve.sampling.process import SequenceSampling
from specserve.text.stream import TextStream
from specserve.types import DraftProbs, FinishedStats, Logprobs, Request, SpecDecodeMetrics, Transfer


@dataclass(slots=True, eq=False)
class Sequence:
    """`max_tokens` is already cut to the context; `leader` is the first of the n choices, whose prompt
    the others wait for. `num_spec_tokens` is the most guesses per step that the request allows,
    `wanted_source` the only one it wants them from."""

    seq_id: int
    request: Request
    index: int
    tokens: list[int]
    num_prompt: int
    table: BlockTable
    sampling: SequenceSampling
    seed: int
    temperature: float
    max_tokens: int
    eos_token_id: int | None
    stop_token_ids: frozenset[int]
    stream: TextStream | None
    leader: Sequence | None = None
    num_spec_tokens: int = 0
    wanted_source: str | None = None
    spec: SpecDecodeMetrics | None = None
    transfer: Transfer = field(default_factory=Transfer)

    output: list[int] = field(default_factory=list)  # tokens[num_prompt:], kept beside for whoever counts it
    computed: int = 0
    draft: list[int] = field(default_factory=list)
    draft_probs: DraftProbs | None = None  # what `draft` was drawn from
    draft_source: str | None = None  # who made the last one
    is_running: bool = False
    is_prompt_done: bool = False
    is_forgotten: bool = False  # by the drafter
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    # News since the last output.
    num_reported: int = 0
    logprobs: list[Logprobs] = field(default_factory=list)
    prompt_logprobs: list[Logprobs | None] | None = None

    # Counts and times for the records.
    num_cached_tokens: int | None = None  # of the first admission
    num_preemptions: int = 0
    first_scheduled: float | None = None
    first_token: float | None = None
    last_token: float = 0.0

    def take_draft(self) -> tuple[list[int], DraftProbs | None]:
        """The guesses and what they were drawn from; none are left."""
        taken = self.draft, self.draft_probs
        self.draft, self.draft_probs = [], None
        return taken

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def is_waiting_for_leader(self) -> bool:
        leader = self.leader
        return leader is not None and not leader.is_prompt_done and not leader.is_finished

    @property
    def wants_prompt_logprobs(self) -> bool:
        return self.request.params.prompt_logprobs is not None and self.leader is None

    def finished_stats(self) -> FinishedStats:
        now = self.last_token
        return FinishedStats(
            finish_reason=self.finish_reason or "",
            arrival=self.request.arrival,
            first_scheduled=self.first_scheduled if self.first_scheduled is not None else now,
            first_token=self.first_token if self.first_token is not None else now,
            last_token=now,
            num_prompt_tokens=self.num_prompt,
            num_generation_tokens=len(self.output),
            num_cached_tokens=self.num_cached_tokens or 0,
            num_preemptions=self.num_preemptions,
            max_tokens=self.request.params.max_tokens,
            n=self.request.params.n,
        )
