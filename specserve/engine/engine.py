"""The page to read first: `Engine.step`.

All methods run on one thread, except `check`, which is pure.
"""

from __future__ import annotations

import logging
from functools import partial
from time import monotonic, perf_counter

from specserve.draft.base import Drafter
from specserve.engine.admission import Admission
from specserve.engine.batch import build_batch, logits_rows
from specserve.engine.commit import commit_plan
from specserve.engine.draft_length import DraftLength
from specserve.engine.logprobs import add_logprobs, add_prompt_logprobs, keep_rows
from specserve.engine.plan import Plan
from specserve.engine.report import report, take_output
from specserve.engine.scheduler import Scheduler
from specserve.engine.sequence import Sequence
from specserve.models.runner import Runner
from specserve.ops import Ops
from specserve.sampling.failure import Failure
from specserve.sampling.logprobs import gather
from specserve.sampling.process import RowGroup, process
from specserve.types import (
    Ask,
    AskBatch,
    CommitBatch,
    Draft,
    FinishedStats,
    Output,
    Request,
    StepOutputs,
    StepStats,
)
from specserve.verify import Verify

logger = logging.getLogger(__name__)


class Engine:
    """A target, a drafter and a verifier around one scheduler."""

    def __init__(
        self,
        runner: Runner,
        drafter: Drafter,
        verify: Verify,
        ops: Ops,
        scheduler: Scheduler,
        admission: Admission,
        draft_length: DraftLength,
        *,
        logprobs_mode: str = "raw_logprobs",
    ) -> None:
        self.runner = runner
        self.drafter = drafter
        self.verify = verify
        self.ops = ops
        self.scheduler = scheduler
        self._admission = admission
        self._draft_length = draft_length
        self._is_raw = logprobs_mode.startswith("raw")
        self._gather = partial(gather, ops, as_logits=logprobs_mode.endswith("logits"))
        self._seqs: dict[str, list[Sequence]] = {}
        self._plan: Plan | None = None

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    def check(self, request: Request) -> None:
        """Raise `InvalidRequest` when the request can never be served. Any thread."""
        self._admission.check(request)

    def has_room_for(self, request: Request) -> bool:
        """False while the waiting queue is too full to `add` it."""
        return len(self.scheduler.waiting) + request.params.n <= self.scheduler.config.max_waiting

    def add(self, request: Request) -> None:
        """Queue a request. Raises `InvalidRequest`, or `Overloaded` when too many wait."""
        seqs = self._admission.admit(request)
        self.scheduler.add(seqs)
        self._seqs[request.request_id] = seqs

    def abort(self, request_id: str) -> list[FinishedStats]:
        """End a request, known or not; its pages are free at once, and no further output comes."""
        seqs = [seq for seq in self._seqs.pop(request_id, []) if not seq.is_finished]
        for seq in seqs:
            seq.finish_reason = "abort"
            seq.last_token = seq.last_token or monotonic()
            self.scheduler.remove(seq)
        self._forget(seqs)
        return [seq.finished_stats() for seq in seqs]

    def snapshot(self) -> StepStats:
        """The gauges as they are now, between steps; all counts zero."""
        scheduler = self.scheduler
        return StepStats(
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            kv_cache_usage=scheduler.pages.usage,
        )

    def step(self) -> StepOutputs:
        """Run every scheduled sequence once: 1 known token + k guesses, or a prompt chunk, are rows."""
        began, native_before = perf_counter(), self.runner.native_seconds
        self._plan = None
        plan = self.scheduler.plan()
        if not plan.items:
            return StepOutputs([], self.snapshot())
        self._plan = plan
        stats = StepStats()
        self._mark_scheduled(plan)
        batch = build_batch(plan, self.scheduler.config.page_size, self._vocab_size)
        groups = _row_groups(plan)
        rows = self.runner.forward(batch, logits_rows(plan))
        forwarded = perf_counter()

        raw = keep_rows(plan, rows.logits, is_final=False) if self._is_raw else {}
        failures: dict[int, Failure] = {}
        logits = process(self.ops, rows.logits, groups, failures)
        kept = raw if self._is_raw else keep_rows(plan, logits, is_final=True)
        add_prompt_logprobs(plan, self.runner, self._gather)
        verdict = self.verify(self.ops, logits, plan.draft, plan.sampling, plan.rng)
        commits, stats.drafts = commit_plan(plan, verdict, failures)
        _log_failures(plan, failures)
        add_logprobs(plan, kept, self._gather)
        verified = perf_counter()

        self.drafter.observe(CommitBatch(commits, rows.features))
        done = self.scheduler.settle(plan, self.drafter.synced)
        self._forget(done)
        asking, asks = self._asks(plan)
        if asking:
            _attach(asking, asks, self.drafter.propose(asks))

        drafted = perf_counter()

        outputs = report(plan, monotonic(), stats)
        self._close_step(done, stats)
        stats.forward_seconds, stats.verify_seconds = forwarded - began, verified - forwarded
        stats.draft_seconds, stats.step_seconds = drafted - verified, perf_counter() - began
        stats.native_seconds = self.runner.native_seconds - native_before
        return StepOutputs(outputs, stats)

    def fail(self, error: BaseException) -> list[Output]:
        """After an exception in `step`: end every request that took part with reason "error".

        Without a plan (planning itself failed) nobody can tell whose fault it was: all end, or the next
        step would fail again.
        """
        plan, self._plan = self._plan, None
        everyone = self.scheduler.running + self.scheduler.waiting
        seqs = [item.seq for item in plan.items] if plan is not None else everyone
        outputs = []
        for request_id in dict.fromkeys(seq.request.request_id for seq in seqs):
            outputs += self._fail_request(request_id)
        return outputs

    # --- parts of a step ----------------------------------------------------------------------

    @property
    def _vocab_size(self) -> int:
        return self.runner.model.vocab_size

    def _mark_scheduled(self, plan: Plan) -> None:
        now = monotonic()
        for item in plan.items:
            if item.seq.first_scheduled is None:
                item.seq.first_scheduled = now

    def _asks(self, plan: Plan) -> tuple[list[Sequence], AskBatch]:
        """Who may guess, and how many: all that sampled and go on."""
        base = self._draft_length.base(len(self.scheduler.running))
        seqs: list[Sequence] = []
        asks: list[Ask] = []
        if base:
            pages = self.scheduler.pages
            num_free_slots = pages.num_free * pages.page_size
            for item in plan.sampling_items:
                seq = item.seq
                limit = 0 if seq.is_finished else self._draft_length.limit(seq, base, num_free_slots)
                if limit:
                    seqs.append(seq)
                    asks.append(_ask(seq, limit))
        return seqs, AskBatch(asks)

    def _close_step(self, done: list[Sequence], stats: StepStats) -> None:
        for seq in done:
            siblings = self._seqs.get(seq.request.request_id, [])
            if all(sibling.is_finished for sibling in siblings):
                self._seqs.pop(seq.request.request_id, None)
        stats.num_running = len(self.scheduler.running)
        stats.num_waiting = len(self.scheduler.waiting)
        stats.kv_cache_usage = self.scheduler.pages.usage
        self._plan = None

    def _fail_request(self, request_id: str) -> list[Output]:
        seqs = self._seqs.pop(request_id, [])
        outputs = []
        for seq in seqs:
            if seq.is_finished and seq.num_reported == len(seq.output):
                continue  # ended in an earlier step and said so
            if not seq.is_finished or seq.is_running:
                self.scheduler.remove(seq)
            seq.finish_reason, seq.stop_reason = "error", None
            outputs.append(take_output(seq))
        self._forget(seqs)
        return outputs

    def _forget(self, seqs: list[Sequence]) -> None:
        """Tell the drafter once about each sequence, however often and in whatever way it ended.

        A drafter that cannot forget costs memory, not an answer, and not the engine where a client went away.
        """
        ending = [seq for seq in seqs if not seq.is_forgotten]
        for seq in ending:
            seq.is_forgotten = True
            seq.transfer.is_whole = seq.finish_reason in ("stop", "length")
        if not ending:
            return
        try:
            self.drafter.forget([seq.seq_id for seq in ending])
        except Exception:
            logger.exception("The drafter could not forget %d ended sequences", len(ending))


def _row_groups(plan: Plan) -> list[RowGroup]:
    groups = []
    first = 0
    for item in plan.sampling_items:
        groups.append(RowGroup(first, item.seq.sampling, item.seq.output, item.draft))
        first += 1 + len(item.draft)
    return groups


def _log_failures(plan: Plan, failures: dict[int, Failure]) -> None:
    """Those that cost a request its answer; the others were met by refused guesses only."""
    for number, failure in failures.items():
        seq = plan.sampling_items[number].seq
        if seq.finish_reason != "error":
            continue
        if failure.reason is not None:
            logger.info("Ended with an error: %s: %s", seq.request.request_id, failure.reason)
        else:
            logger.error("Ended with an error: %s", seq.request.request_id, exc_info=failure.error)


def _ask(seq: Sequence, num_tokens: int) -> Ask:
    return Ask(
        seq.seq_id,
        seq.tokens,
        num_tokens,
        seq.temperature,
        seq.seed,
        seq.table.pages,
        seq.num_prompt,
        seq.request.predicted_token_ids,
        seq.wanted_source,
    )


def _attach(seqs: list[Sequence], asks: AskBatch, draft: Draft) -> None:
    """Guesses become the sequences' drafts, never more than asked for."""
    probs = draft.q or [None] * len(seqs)
    sources = draft.sources or [None] * len(seqs)
    for seq, ask, tokens, own, source in zip(seqs, asks.asks, draft.tokens, probs, sources, strict=True):
        seq.draft = tokens[: ask.num_tokens]
        seq.draft_probs = None if own is None else own.cut(len(seq.draft))
        seq.draft_source = source
