"""Asks an engine in this process, and keeps the times of answers and of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from specserve.bench.acceptance import Acceptance, from_histogram
from specserve.bench.answers import Answer
from specserve.bench.dataset import Question
from specserve.engine.engine import Engine
from specserve.errors import InvalidRequest
from specserve.types import Output, Request, SamplingParams, SpecDecodeMetrics, StepStats


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt to be answered. Jobs of different tenants share no pages and no remembered outputs."""

    question: Question
    prompt: list[int]
    params: SamplingParams
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step. `seconds` of it in all, in `forward`, of that in `native` (0 where PyTorch computes), in
    `draft` and `verify`. `num_emitting` sequences emitted `num_emitted` tokens; their prompts' own steps
    count nothing. `is_decode`: no row belonged to a prompt."""

    seconds: float
    forward: float
    native: float
    draft: float
    verify: float
    num_rows: int
    num_emitting: int
    num_emitted: int
    is_decode: bool

    @property
    def network(self) -> float:
        """The target's own part; with PyTorch, planning is in it."""
        return self.native or self.forward


@dataclass(slots=True)
class OfflineRun:
    """Answers in the order of the jobs, one per choice; steps in theirs."""

    answers: list[Answer] = field(default_factory=list)
    steps: list[StepTime] = field(default_factory=list)
    duration: float = 0.0

    def add(self, other: OfflineRun) -> None:
        self.answers += other.answers
        self.steps += other.steps
        self.duration += other.duration


class OfflineAsker:
    """Runs jobs to their end. `clock` counts seconds, as `time.monotonic`."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._num_requests = 0

    def run(self, jobs: Sequence[Job], on_answer: Callable[[], None] | None = None) -> OfflineRun:
        """All at once, as far as the engine has room. `on_answer` is called after each job.

        A job that can never be served has an answer with an error, as a server would have said it.
        """
        began = self._clock()
        run = OfflineRun()
        everyone = [_Pending(job) for job in jobs]
        waiting = list(reversed(everyone))
        running: dict[str, _Pending] = {}
        try:
            while waiting or running:
                self._fill(waiting, running, began)
                self._step(running, run, began, on_answer)
        finally:
            for name in running:  # on any way out, nothing of them stays in the engine
                self._engine.abort(name)
        run.duration = self._clock() - began
        run.answers = [answer for pending in everyone for answer in pending.answers()]
        return run

    def _fill(self, waiting: list[_Pending], running: dict[str, _Pending], began: float) -> None:
        while waiting:
            job = waiting[-1].job
            request = Request(
                f"bench-{self._num_requests}", job.prompt, job.params, self._clock(), tenant=job.tenant
            )
            if not self._engine.has_room_for(request):
                return
            self._num_requests += 1
            pending = waiting.pop()
            pending.sent = self._clock() - began
            try:
                self._engine.check(request)
            except InvalidRequest as error:
                pending.error = str(error)
                continue
            self._engine.add(request)
            running[request.request_id] = pending

    def _step(
        self,
        running: dict[str, _Pending],
        run: OfflineRun,
        began: float,
        on_answer: Callable[[], None] | None,
    ) -> None:
        if not running:
            return
        result = self._engine.step()
        now = self._clock() - began
        run.steps.append(step_time(result.stats))
        for output in result.outputs:
            pending = running[output.request_id]
            pending.take(output, now)
            if pending.is_done:
                del running[output.request_id]
                if on_answer is not None:
                    on_answer()


def step_time(stats: StepStats) -> StepTime:
    num_decode_rows = stats.num_emitting + sum(draft.drafted for draft in stats.drafts)
    return StepTime(
        stats.step_seconds,
        stats.forward_seconds,
        stats.native_seconds,
        stats.draft_seconds,
        stats.verify_seconds,
        stats.num_rows,
        stats.num_emitting,
        stats.num_emitted,
        is_decode=stats.num_rows == num_decode_rows > 0,
    )


def acceptance_of(metrics: SpecDecodeMetrics | None) -> Acceptance | None:
    if metrics is None:
        return None
    drafted, accepted = metrics.num_draft_tokens, metrics.num_accepted_draft_tokens
    return from_histogram(drafted, accepted, metrics.acceptance_histogram)


@dataclass(slots=True)
class _Choice:
    ids: list[int] = field(default_factory=list)
    text: str = ""
    chunks: list[float] = field(default_factory=list)
    last: Output | None = None

    def take(self, output: Output, now: float) -> None:
        self.ids += output.token_ids
        self.text += output.text
        if output.token_ids:
            self.chunks.append(now)
        self.last = output


@dataclass(slots=True)
class _Pending:
    """An answer in the making."""

    job: Job
    sent: float = 0.0
    error: str = ""
    choices: dict[int, _Choice] = field(default_factory=dict)
    num_done: int = 0

    @property
    def is_done(self) -> bool:
        return self.num_done == self.job.params.n

    def take(self, output: Output, now: float) -> None:
        self.choices.setdefault(output.index, _Choice()).take(output, now)
        if output.finish_reason is not None:
            self.num_done += 1
        if output.finish_reason in ("error", "abort"):
            self.error = f"ended by {output.finish_reason}"

    def answers(self) -> list[Answer]:
        choices = [self.choices.get(index, _Choice()) for index in range(self.job.params.n)]
        return [
            Answer(
                self.job.question,
                self.sent,
                tuple(choice.chunks),
                choice.chunks[-1] if choice.chunks else self.sent,
                choice.text,
                len(self.job.prompt),
                len(choice.ids),
                None if choice.last is None else acceptance_of(choice.last.spec_decode_metrics),
                self.error or ("" if choice.chunks else "no tokens came"),
                tuple(choice.ids),
            )
            for choice in choices
        ]
