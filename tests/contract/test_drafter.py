"""The drafter suite over all drafters at hand, and over broken ones that must not pass."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
from torch import Tensor

from specserve.draft.base import SYNCED_ALWAYS
from specserve.draft.ngram import NgramDrafter, Options
from specserve.engine import engine as engine_module
from specserve.engine.commit import commit_plan
from specserve.engine.plan import Plan
from specserve.ops import Ops
from specserve.types import (
    Ask,
    AskBatch,
    Commit,
    CommitBatch,
    Draft,
    DraftStats,
    Verdict,
)
from tests.contract.drafter import (
    CHECKS,
    SAMPLED_CHECKS,
    Build,
    check_answers,
    check_drawn_guesses,
    check_forgetting,
    check_observing_twice,
)
from tests.support.drafters import Guesser, Sampler, random_guesses, self_draft
from tests.support.witness import Cached
from tests.support.zoo import ZOO, Habitat, draft_model


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ZOO)
def test_a_drafter_fulfils_the_contract(name: str, check: object) -> None:
    check(ZOO[name])  # type: ignore[operator]


def test_never_guessing_fulfils_the_contract() -> None:
    for check in CHECKS:
        check(lambda _: Guesser(lambda _: []))


@pytest.mark.parametrize("check", [*CHECKS, *SAMPLED_CHECKS])
@pytest.mark.parametrize("ids", [None, range(5, 30)])
def test_a_drafter_that_draws_fulfils_the_contract(ids: range | None, check: object) -> None:
    check(lambda h: Sampler(h.model, "probabilistic", ids=ids))  # type: ignore[operator]


@pytest.mark.parametrize("check", SAMPLED_CHECKS)
def test_a_draft_model_that_draws_fulfils_the_contract(check: object) -> None:
    check(lambda h: draft_model(h, draft_sample_method="probabilistic"))  # type: ignore[operator]


# --- negative controls ------------------------------------------------------------------------


def test_a_verifier_that_accepts_everything_is_noticed() -> None:
    def accept_all(_: Ops, logits: Tensor, draft: Draft, *rest: object) -> Verdict:  # noqa: ARG001
        last_rows = accumulate(1 + length for length in draft.lengths)
        return Verdict(draft.lengths, [int(logits[end - 1].argmax()) for end in last_rows])

    with pytest.raises(AssertionError, match="not the target's own"):
        check_answers(lambda h: random_guesses(h.model.vocab_size), verify=accept_all)


def test_rejected_rows_counted_as_computed_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit_all(plan: Plan, verdict: Verdict, _: object) -> tuple[list[Commit], list[DraftStats]]:
        commits, drafts = commit_plan(plan, verdict)
        for item in plan.items:
            item.seq.computed = max(item.seq.computed, item.start + item.num_rows - 1)
        return commits, drafts

    monkeypatch.setattr(engine_module, "commit_plan", commit_all)
    with pytest.raises(AssertionError):
        check_answers(ZOO["random"])


def test_a_drafter_told_of_rejected_rows_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit_all(plan: Plan, verdict: Verdict, _: object) -> tuple[list[Commit], list[DraftStats]]:
        commits, drafts = commit_plan(plan, verdict)
        pairs = zip(commits, plan.items, strict=True)
        return [replace(commit, end=item.start + item.num_rows) for commit, item in pairs], drafts

    monkeypatch.setattr(engine_module, "commit_plan", commit_all)
    with pytest.raises(AssertionError, match="the last row is unknown"):
        check_answers(ZOO["random"])


def cached(habitat: Habitat, **needs: int) -> Cached:
    drafter = Cached(self_draft(habitat.model), habitat.model, habitat.page_size, habitat.k)
    drafter.needs = replace(drafter.needs, **needs)  # type: ignore[arg-type]
    return drafter


def test_page_keys_without_the_successor_are_noticed() -> None:
    with pytest.raises(AssertionError, match="made with another next token"):
        check_answers(lambda h: cached(h, successors=0), num_workloads=40)


def test_missing_lookahead_slots_are_noticed() -> None:
    with pytest.raises((AssertionError, IndexError)):
        check_answers(lambda h: cached(h, lookahead=0))


def test_claiming_rows_that_are_not_written_yet_is_noticed() -> None:
    class Boastful(Cached):
        def synced(self, seq_id: int) -> int:
            return SYNCED_ALWAYS

    def build(h: Habitat) -> Boastful:
        return Boastful(random_guesses(), h.model, h.page_size, h.k, is_lazy=True)

    with pytest.raises(AssertionError, match="of the drafter is not true"):
        check_answers(build)


class Leaky(NgramDrafter):
    def forget(self, seq_ids: list[int]) -> None:
        super().forget(seq_ids[1:])


class Greedy(Guesser):
    """Answers with one guess more than asked."""

    def propose(self, asks: AskBatch) -> Draft:
        return Draft([[0] * (ask.num_tokens + 1) for ask in asks.asks])


class Counting(Guesser):
    """Its guess depends on how often it was told something."""

    def __init__(self) -> None:
        super().__init__(self._count)
        self._num_rows = 0

    def observe(self, commits: CommitBatch) -> None:
        self._num_rows += sum(commit.end - commit.start for commit in commits.commits)

    def _count(self, ask: Ask) -> list[int]:
        return [self._num_rows % 30]


class Flat(Sampler):
    """Draws from one law and reports another."""

    def propose(self, asks: AskBatch) -> Draft:
        draft = super().propose(asks)
        flatter = [None if q is None else replace(q, probs=(q.probs * 0.3).softmax(1)) for q in draft.q or []]
        return replace(draft, q=flatter)


@pytest.mark.parametrize(
    ("check", "build", "finding"),
    [
        (check_drawn_guesses, lambda h: Flat(h.model, "probabilistic"), "not what was sampled"),
        (check_drawn_guesses, lambda h: Sampler(h.model, "greedy"), "hardly anything was drawn"),
        (check_forgetting, lambda _: Leaky(Options(1, 2)), "state grows"),
        (check_answers, lambda _: Greedy(lambda _: []), "answered with"),
        (check_observing_twice, lambda _: Counting(), "twice changed the guesses"),
    ],
)
def test_a_broken_drafter_is_noticed(check: object, build: Build, finding: str) -> None:
    with pytest.raises(AssertionError, match=finding):
        check(build)  # type: ignore[operator]
