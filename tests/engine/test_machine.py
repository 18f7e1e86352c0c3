"""Any arrivals, steps, aborts and failures, under any limits, with any drafts, each request with its own
number of them: books balance and answers are right."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from specserve.types import Ask, Request, Speculation
from tests.support.drafters import Guesser, Wrapped
from tests.support.engine import (
    EOS,
    Result,
    Run,
    check_books,
    greedy,
    letters,
    make_engine,
    plain,
    request,
    run,
    step,
)
from tests.support.stub import StubModel
from tests.support.traffic import sampled
from tests.support.witness import Cached, Recording

MODEL = StubModel()
MAX_LEN = 40
MOST = 6  # guesses per step
TOKENIZER = letters()


class Broken(Exception):
    """What a drafter's bug raises."""


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
        table=st.lists(st.integers(0, MOST), min_size=5, max_size=5),
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
        self.cached = Cached(Guesser(any_guesses), MODEL, page_size, k=MOST, is_lazy=is_lazy)
        self.cached.needs = replace(self.cached.needs, draft_slots=draft_slots)
        self.is_broken = False
        self.drafter = Recording(Wrapped(self.cached, self._break), page_size, MODEL, may_exceed=True)
        self.engine = make_engine(
            MODEL,
            self.drafter,
            page_size=page_size,
            num_pages=round(-(-MAX_LEN // page_size) * spare),
            max_model_len=MAX_LEN,
            table=[0, *table[:-1], MOST],  # the last entry is what a request may ask for
            budget=budget if chunking else MAX_LEN + draft_slots,
            chunking=chunking,
            policy=policy,
            tokenizer=TOKENIZER,
            max_waiting=10,
            **options,  # type: ignore[arg-type]
        )
        self.found = Run()
        self.requests: dict[str, Request] = {}
        self.cut_short: set[str] = set()  # aborted or failed

    def _break(self, _: Ask, tokens: list[int]) -> list[int]:
        if self.is_broken:
            raise Broken
        return tokens

    @rule(
        length=st.integers(1, 24),
        turn=st.integers(0, 24),
        max_tokens=st.integers(1, 20),
        seed=st.none() | st.integers(0, 3),
        n=st.integers(1, 3),
        priority=st.integers(-1, 1),
        tenant=st.sampled_from(["", "x"]),
        num_drafts=st.none() | st.integers(0, MOST),
        asks=st.fixed_dictionaries(
            {},
            optional={
                "stop": st.sampled_from(["a", "bc", "e "]),
                "stop_token_ids": st.just([5, 17]),
                "ignore_eos": st.just(True),
                "logprobs": st.integers(0, 2),
                "prompt_logprobs": st.just(1),
                "frequency_penalty": st.sampled_from([-1.0, 1.5]),
                "logit_bias": st.just({EOS: 4.0}),
            },
        ),
    )
    def add(
        self,
        length: int,
        turn: int,
        max_tokens: int,
        seed: int | None,
        n: int,
        priority: int,
        tenant: str,
        num_drafts: int | None,
        asks: dict[str, Any],
    ) -> None:
        """Prompts are the same up to `turn`. Without a seed the request is greedy, and alone."""
        if num_drafts is not None:
            asks["speculation"] = {"num_speculative_tokens": num_drafts}
        params = greedy(max_tokens, **asks) if seed is None else sampled(max_tokens, seed=seed, n=n, **asks)
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
            self.cut_short.add(name)

    @rule()
    def fail(self) -> None:
        """The drafter breaks, if it is asked at all: everyone in that step ends, and nobody else."""
        self.is_broken = True
        running = {seq.request.request_id for seq in self.engine.scheduler.running}
        waiting = {seq.request.request_id for seq in self.engine.scheduler.waiting}
        try:
            step(self.engine, self.found)
        except Broken as error:
            ended = self.engine.fail(error)
            check_books(self.engine)
            assert {output.finish_reason for output in ended} == {"error"}
            names = {output.request_id for output in ended}
            assert names <= running | waiting
            self.cut_short |= names
            for output in ended:
                self.found.results.setdefault((output.request_id, output.index), Result()).add(output)
        self.is_broken = False

    @invariant()
    def counters_are_never_negative(self) -> None:
        config, pages = self.engine.scheduler.config, self.engine.scheduler.pages
        assert 0 <= pages.num_free <= pages.num_pages
        assert len(self.engine.scheduler.running) <= config.max_num_seqs
        for stats in self.found.steps[-6:]:
            assert stats.num_trimmed_draft_tokens >= 0
            assert 0 <= stats.num_emitting <= stats.num_emitted <= stats.num_generation_tokens
            assert stats.num_rows <= config.max_num_batched_tokens
            assert all(MOST >= d.drafted >= d.accepted + d.discarded >= d.accepted >= 0 for d in stats.drafts)
            assert 0.0 <= stats.kv_cache_usage <= 1.0
            assert 0 <= stats.prefix_hits <= stats.prefix_queries

    @invariant()
    def guesses_are_as_many_as_the_request_allows(self) -> None:
        for seq in self.engine.scheduler.running + self.engine.scheduler.waiting:
            asked = Speculation.of(seq.request.params.speculation).num_speculative_tokens
            most = MOST if asked is None else asked
            assert len(seq.draft) <= most
            assert seq.spec is not None
            assert all(drafted <= most for drafted in seq.spec.acceptance_histogram_by_draft_length)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        rest = run(self.engine, [], max_steps=2000)
        assert self.drafter.forgotten == set(range(sum(one.params.n for one in self.requests.values())))
        assert self.cached.is_empty
        for key, result in rest.results.items():
            before = self.found.results.setdefault(key, Result())
            for output in result.outputs:
                before.add(output)
        for name, one in self.requests.items():
            self._check_answers(one, is_whole=name not in self.cut_short)

    def _check_answers(self, one: Request, is_whole: bool) -> None:
        """All of an answer; of one cut short, the tokens that came."""
        alone = replace(one, params=replace(one.params, speculation=None))
        for key, right in plain(
            MODEL, [alone], num_pages=MAX_LEN, page_size=1, tokenizer=TOKENIZER
        ).results.items():
            got = self.found.results.get(key, Result())
            if is_whole:
                assert got.answer == right.answer
            assert got.token_ids == right.token_ids[: len(got.token_ids)]


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
