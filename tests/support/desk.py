"""The scheduler alone: no target and no drafter, drafts and verdicts are given by hand."""

from __future__ import annotations

from specserve.config.scheduler import SchedulerConfig
from specserve.draft.base import SYNCED_ALWAYS
from specserve.engine.admission import Admission, Vocabulary
from specserve.engine.commit import commit_plan
from specserve.engine.draft_length import Loaded
from specserve.engine.plan import Plan
from specserve.engine.scheduler import Scheduler
from specserve.engine.sequence import Sequence
from specserve.kv.pages import PageAllocator
from specserve.text.tokenizer import Tokenizer
from specserve.types import Commit, DraftStats, Needs, Request, SamplingParams, Verdict
from tests.support.engine import EOS


class Desk:
    """`config` as in `SchedulerConfig`; pages of 4 tokens unless it says otherwise."""

    def __init__(
        self,
        needs: Needs | None = None,
        tokenizer: Tokenizer | None = None,
        extra_eos: frozenset[int] = frozenset(),
        **config: object,
    ) -> None:
        defaults = {"max_model_len": 64, "max_num_seqs": 8, "page_size": 4, "num_pages": 32}
        self.config = SchedulerConfig(**{**defaults, **config})  # type: ignore[arg-type]
        needs = needs or Needs()
        self.pages = PageAllocator(self.config.num_pages, self.config.page_size, needs.successors)
        self.scheduler = Scheduler(self.config, self.pages, needs)
        self.admission = Admission(
            self.config,
            Vocabulary(32, EOS, extra_eos),
            tokenizer,
            engine_seed=0,
            loaded=Loaded(("desk",), 8),
        )
        self.synced = SYNCED_ALWAYS
        self.commits: list[Commit] = []
        self.drafts: list[DraftStats] = []

    def add(
        self,
        name: str,
        prompt: int | list[int],
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        arrival: float = 0.0,
        tenant: str = "",
    ) -> Sequence:
        """A prompt by its length is one no other request shares."""
        if isinstance(prompt, int):
            first = len(self.scheduler.running) + len(self.scheduler.waiting)
            prompt = [first, *range(1, prompt)]
        params = params or SamplingParams(temperature=0.0, max_tokens=None, ignore_eos=True)
        seqs = self.admission.admit(Request(name, prompt, params, arrival, priority, tenant))
        self.scheduler.add(seqs)
        return seqs[0]

    def step(self, **generated: list[int]) -> Plan:
        """Plan, then let each sampling request emit the tokens named for it (default: all drafts and a 0)."""
        plan = self.scheduler.plan()
        verdict = Verdict([], [])
        for item in plan.sampling_items:
            tokens = generated.get(item.seq.request.request_id, [*item.draft, 0])
            assert tokens[:-1] == item.draft[: len(tokens) - 1], "accepted tokens are drafts"
            verdict.accepted.append(len(tokens) - 1)
            verdict.next_tokens.append(tokens[-1])
        self.commits, self.drafts = commit_plan(plan, verdict)
        self.scheduler.settle(plan, lambda _: self.synced)
        return plan


def rows(plan: Plan) -> dict[str, int]:
    """Rows of each request in this step."""
    return {item.seq.request.request_id: item.num_rows for item in plan.items}


def drafts(plan: Plan) -> dict[str, list[int]]:
    return {item.seq.request.request_id: item.draft for item in plan.items if item.draft}
