"""What any drafter must fulfil. A plug-in's own tests call these with its builder:

    for check in CHECKS:
        check(lambda habitat: MyDrafter(...))

`SAMPLED_CHECKS` are for drafters that draw. Each raises AssertionError with what went wrong. The target is
the stub of `tests/support/stub.py`: its answers and feature rows are exact, so a row that is not true cannot
hide.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import BuiltinFunctionType, FunctionType, ModuleType

import torch
from torch import Tensor

from specserve.draft.base import Drafter
from specserve.engine.draft_length import DraftLength
from specserve.engine.engine import Engine
from specserve.engine.sequence import Sequence
from specserve.types import AskBatch, CommitBatch, Draft, DraftProbs, Request
from specserve.verify import Verify
from tests.support.engine import greedy, make_engine, plain, request, run
from tests.support.stub import StubModel
from tests.support.witness import Recording, check
from tests.support.zoo import Habitat

Build = Callable[[Habitat], Drafter]

MAX_LEN, PAGE_SIZE, MAX_DRAFTS = 48, 4, 6


def workload(seed: int, num_requests: int = 8) -> list[Request]:
    """Greedy requests. Many begin with some pages of a common prefix, then differ; some repeat themselves."""
    random = Random(seed)
    prefix = [random.randrange(30) for _ in range(14)]
    requests = []
    for number in range(num_requests):
        own = [random.randrange(30) for _ in range(random.randint(1, 6))]
        prompt = random.choice([prefix + own, prefix[:12] + own, prefix[:8] + own, own * 3, prefix])
        requests.append(request(f"r{number}", prompt, greedy(random.randint(1, 24), ignore_eos=True)))
    return requests


class RandomLength:
    """Any number of guesses up to what the engine's own rule allows, another one for each ask."""

    def __init__(self, inner: DraftLength, seed: int) -> None:
        self._inner = inner
        self._random = Random(seed)

    def base(self, num_running: int) -> int:
        return self._inner.base(num_running)

    def limit(self, seq: Sequence, base: int, num_free_slots: int) -> int:
        return self._random.randint(0, self._inner.limit(seq, base, num_free_slots))


def build_engine(drafter: Drafter, model: StubModel, seed: int, verify: Verify | None = None) -> Engine:
    """Few pages, small chunks, any number of drafts: every hardship at once."""
    random = Random(seed)
    engine = make_engine(
        model,
        drafter,
        k=MAX_DRAFTS,
        page_size=PAGE_SIZE,
        num_pages=random.choice([12, 14, 20]),
        max_model_len=MAX_LEN,
        budget=random.choice([12, 32]),
        prompt_rows=random.choice([1, 3, 8]),
        verify=verify,
    )
    engine._draft_length = RandomLength(engine._draft_length, seed)  # type: ignore[assignment]
    return engine


def habitat(model: StubModel, requests: list[Request]) -> Habitat:
    prompts = {one.request_id: one.prompt_token_ids for one in requests}
    results = plain(model, requests, num_pages=MAX_LEN, page_size=1, eos=None).results
    texts = [[*prompts[name], *result.token_ids] for (name, _), result in results.items()]
    return Habitat(model, texts, PAGE_SIZE, MAX_DRAFTS)


def check_answers(
    build: Build, verify: Verify | None = None, num_workloads: int = 6, *, shares_pages: bool = True
) -> None:
    """Greedy text is the target's own under preemption, prefix hits, chunks and any number of drafts.

    `Recording` checks on the way: never more guesses than asked, and (of the engine) every promise about
    commits. The run must have met what it claims to test.
    """
    num_preemptions = num_hits = 0
    for seed in range(num_workloads):
        model, requests = StubModel(), workload(seed)
        engine = build_engine(
            Recording(build(habitat(model, requests)), PAGE_SIZE, model), model, seed, verify
        )
        arrivals = {one.request_id: number for number, one in enumerate(requests)}
        found = run(engine, requests, arrivals=arrivals)
        for one in requests:
            right = model.continuation(one.prompt_token_ids, one.params.max_tokens or 0)
            check(found[one.request_id].token_ids == right, "the text is not the target's own")
        num_preemptions += found.total("num_preemptions")
        num_hits += found.total("prefix_hits")
    check(num_preemptions > 0, "the workload met no preemption")
    check((num_hits > 0) == shares_pages, f"the workload met {num_hits} prefix hits")


class ObserveTwice:
    """Tells `inner` everything twice, and writes down what it answers."""

    def __init__(self, inner: Drafter, times: int) -> None:
        self.needs, self.synced, self.forget = inner.needs, inner.synced, inner.forget
        self.inner = inner
        self._times = times
        self.answers: list[tuple[int, int, list[int]]] = []

    def observe(self, commits: CommitBatch) -> None:
        for _ in range(self._times):
            self.inner.observe(commits)

    def propose(self, asks: AskBatch) -> Draft:
        draft = self.inner.propose(asks)
        for ask, tokens in zip(asks.asks, draft.tokens, strict=True):
            self.answers.append((ask.seq_id, len(ask.tokens), list(tokens)))
        return draft


def check_observing_twice(build: Build) -> None:
    """`observe` is idempotent by position: the same news twice gives the same guesses."""
    answers = []
    for times in (1, 2):
        model, requests = StubModel(), workload(3)
        drafter = ObserveTwice(build(habitat(model, requests)), times)
        run(build_engine(drafter, model, 3), requests)
        answers.append(drafter.answers)
    check(answers[0] == answers[1], "the same news twice changed the guesses")


def check_forgetting(build: Build) -> None:
    """After `forget` nothing of a sequence is left: the drafter's state does not grow with requests seen,
    whether they finished, were aborted or failed."""
    model, requests = StubModel(), workload(4)
    drafter = build(habitat(model, requests))
    engine = build_engine(drafter, model, 4)
    sizes = []
    for number in range(4):
        for one in requests:
            engine.add(one)
        for _ in range(5):
            engine.step()
        engine.abort(requests[number].request_id)
        if number % 2:
            engine.fail(RuntimeError("as after a broken step"))
        run(engine, [])
        sizes.append(state_size(drafter))
    check(sizes[0] == sizes[1] == sizes[2] == sizes[3], f"state grows with requests seen: {sizes}")


class Asked:
    """Passes everything on and remembers each drawn guess: its place, id, and what it was drawn from."""

    def __init__(self, inner: Drafter) -> None:
        self.needs, self.observe, self.synced, self.forget = (
            inner.needs,
            inner.observe,
            inner.synced,
            inner.forget,
        )
        self.inner = inner
        self.drawn: list[tuple[int, int, DraftProbs]] = []

    def propose(self, asks: AskBatch) -> Draft:
        draft = self.inner.propose(asks)
        for ask, tokens, q in zip(asks.asks, draft.tokens, draft.q or [None] * len(asks.asks), strict=True):
            if q is not None:
                check(ask.temperature > 0, "drawn at temperature 0")
                check(len(q.probs) >= len(tokens), "guesses without a q")
                self.drawn += [(j, token, q) for j, token in enumerate(tokens)]
        return draft


def check_drawn_guesses(build: Build, num_workloads: int = 12) -> None:
    """For drafters with probabilities: q is what was sampled.

    Each guess x ~ q falls into a set S with probability q(S), whatever came before; so over all guesses the
    sum of 1{x in S} - q(S), in units of its standard deviation, is a standard normal number. The sets: every
    other id, and the likeliest one.
    """
    num_drawn, total, variance = 0, [0.0, 0.0], [0.0, 0.0]
    for seed in range(num_workloads):
        model, requests = (
            StubModel(),
            [
                replace(one, params=replace(one.params, temperature=1.0, seed=17 * seed + i))
                for i, one in enumerate(workload(seed))
            ],
        )
        drafter = Asked(build(habitat(model, workload(seed))))
        run(build_engine(drafter, model, seed), requests)
        num_drawn += len(drafter.drawn)
        for place, token, q in drafter.drawn:
            row, ids = q.probs[place].double(), q.ids
            ids = torch.arange(len(row)) if ids is None else ids
            check(abs(float(row.sum()) - 1) < 1e-4, "q does not add up to 1")
            check(bool((row[ids == token] > 0).any()), "a guess that q cannot have drawn")
            for i, is_inside in enumerate((ids % 2 == 0, row == row.max())):
                chance = float(row[is_inside].sum())
                total[i] += float(is_inside[ids == token].any()) - chance
                variance[i] += chance * (1 - chance)
    check(num_drawn > 500, "hardly anything was drawn")
    z = [part / spread**0.5 for part, spread in zip(total, variance, strict=True)]
    check(max(map(abs, z)) < 4.5, f"q is not what was sampled: z = {z}")


CHECKS = (check_answers, check_observing_twice, check_forgetting)
SAMPLED_CHECKS = (check_drawn_guesses,)

_OPAQUE = (type, ModuleType, FunctionType, BuiltinFunctionType, Tensor, StubModel)


def state_size(drafter: Drafter) -> int:
    """How many entries all containers reachable from a drafter have; code and the target do not count."""
    seen: set[int] = set()
    todo: list[object] = [drafter]
    size = 0
    while todo:
        one = todo.pop()
        if id(one) not in seen and not isinstance(one, _OPAQUE):
            seen.add(id(one))
            size += len(one) if isinstance(one, dict | list | set | tuple) else 0
            todo += gc.get_referents(one)
    return size
