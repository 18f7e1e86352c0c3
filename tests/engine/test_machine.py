"""Any arrivals, steps and aborts, under any limits, with any drafts: books balance and tokens are right."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from specserve.types import Ask, Request
from tests.support.drafters import Guesser
from tests.support.engine import Run, greedy, make_engine, plain, request, run, step
from tests.support.stub import StubModel
from tests.support.traffic import sampled
from tests.support.witness import Cached, Recording

MODEL = StubModel()
MAX_LEN = 40


def any_guesses(ask: Ask) -> list[int]:
    """Right for a while, then anything at all; sometimes nothing, sometimes more than asked."""
    random = Random(f"{ask.seq_id}/{len(ask.tokens)}")
    right = MODEL.continuation(list(ask.tokens), random.randint(0, ask.num_tokens))
    return right + [random.randint(-2, 33) for _ in range(random.choice([0, 1, 3, 9]))]


class Machine(RuleBasedStateMachine):
    @initialize(
        page_size=st.integers(1, 9),
        spare=st.floats(1.0, 2.5),
        budget=st.integers(4, 40),
        draft_slots=st.integers(0, 3),
        prompt_rows=st.integers(1, 40),
        max_num_seqs=st.integers(1, 5),
        table=st.lists(st.integers(0, 6), min_size=5, max_size=5),
        threshold=st.integers(0, 9),
        policy=st.sampled_from(["fcfs", "priority"]),
        caching=st.booleans(),
        chunking=st.booleans(),
        is_lazy=st.booleans(),
    )
    def build(
        self,
        page_size: int,
        spare: float,
        budget: int,
        draft_slots: int,
        table: list[int],
        policy: str,
        chunking: bool,
        is_lazy: bool,
        **options: int,
    ) -> None:
        drafter = Cached(Guesser(any_guesses), MODEL, page_size, k=6, is_lazy=is_lazy)
        drafter.needs = replace(drafter.needs, draft_slots=draft_slots)
        self.drafter = Recording(drafter, page_size, MODEL, may_exceed=True)
        self.engine = make_engine(
            MODEL,
            self.drafter,
            page_size=page_size,
            num_pages=round(-(-MAX_LEN // page_size) * spare),
            max_model_len=MAX_LEN,
            table=[0, *table],
            budget=budget if chunking else MAX_LEN + draft_slots,
            chunking=chunking,
            policy=policy,
            eos=None,
            max_waiting=10,
            **options,  # type: ignore[arg-type]
        )
        self.found = Run()
        self.requests: dict[str, Request] = {}
        self.aborted: set[str] = set()

    @rule(
        length=st.integers(1, 24),
        turn=st.integers(0, 24),
        max_tokens=st.integers(1, 20),
        seed=st.none() | st.integers(0, 3),
        n=st.integers(1, 3),
        priority=st.integers(-1, 1),
        tenant=st.sampled_from(["", "x"]),
    )
    def add(
        self, length: int, turn: int, max_tokens: int, seed: int | None, n: int, priority: int, tenant: str
    ) -> None:
        """Prompts are the same up to `turn`. Without a seed the request is greedy, and alone."""
        params = greedy(max_tokens) if seed is None else sampled(max_tokens, seed=seed, n=n)
        prompt = [p % 7 if p < turn else (p + turn) % 11 for p in range(length)]
        if self.engine.scheduler.config.policy == "fcfs":
            priority = 0
        name = f"r{len(self.requests)}"
        one = request(name, prompt, params, priority=priority, tenant=tenant)
        if self.engine.has_room_for(one):
            self.engine.add(one)
            self.requests[name] = one

    @rule(times=st.integers(1, 6))
    def step(self, times: int) -> None:
        for _ in range(times):
            step(self.engine, self.found)

    @precondition(lambda self: self.requests)
    @rule(number=st.integers(0, 100))
    def abort(self, number: int) -> None:
        name = f"r{number % len(self.requests)}"
        if self.engine.abort(name):
            self.aborted.add(name)

    @invariant()
    def counters_are_never_negative(self) -> None:
        for stats in self.found.steps[-6:]:
            assert stats.num_trimmed_draft_tokens >= 0
            assert all(d.drafted >= d.accepted + d.discarded >= d.accepted >= 0 for d in stats.drafts)
            assert 0.0 <= stats.kv_cache_usage <= 1.0
            assert stats.prefix_hits <= stats.prefix_queries

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        rest = run(self.engine, [], max_steps=2000)
        assert self.drafter.forgotten == set(range(sum(one.params.n for one in self.requests.values())))
        inner = self.drafter.inner
        assert isinstance(inner, Cached)
        assert inner.is_empty
        for name, one in self.requests.items():
            self._check_answers(one, rest, is_whole=name not in self.aborted)

    def _check_answers(self, one: Request, rest: Run, is_whole: bool) -> None:
        expected = plain(MODEL, [one], num_pages=MAX_LEN, page_size=1, eos=None)
        for key, right in expected.results.items():
            parts = [run.results[key].token_ids for run in (self.found, rest) if key in run.results]
            got = [token for part in parts for token in part]
            assert got == right.token_ids[: len(got)]
            assert len(got) == len(right.token_ids) or not is_whole


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
