"""How requests end before their time: aborted, or with a step that failed."""

from __future__ import annotations

import pytest

from specserve.engine.engine import Engine
from specserve.engine.plan import Plan
from tests.support.drafters import raises_sometimes, self_draft
from tests.support.engine import Result, Run, check_idle, greedy, letters, make_engine, request, run, step
from tests.support.stub import StubModel
from tests.support.traffic import sampled
from tests.support.witness import Recording

MODEL = StubModel()


def recorded(**options: object) -> tuple[Engine, Recording]:
    drafter = Recording(self_draft(MODEL), 4, MODEL)
    return make_engine(MODEL, drafter, **options), drafter  # type: ignore[arg-type]


# --- abort ------------------------------------------------------------------------------------


def test_an_abort_frees_pages_at_once_and_nothing_more_comes() -> None:
    engine, drafter = recorded()
    for name in "ab":
        engine.add(request(name, [1, 2, 3, ord(name) % 31], greedy(30, ignore_eos=True)))
    found = Run()
    step(engine, found)
    used = engine.scheduler.pages.num_pages - engine.scheduler.pages.num_free
    (stats,) = engine.abort("a")
    assert engine.scheduler.pages.num_pages - engine.scheduler.pages.num_free < used
    assert (stats.finish_reason, stats.num_generation_tokens) == ("abort", 1)
    assert drafter.forgotten == {0}
    rest = run(engine, [])
    assert {name for name, _ in rest.results} == {"b"}
    assert engine.abort("a") == []
    assert engine.abort("never seen") == []


def test_a_waiting_request_can_be_aborted() -> None:
    engine, drafter = recorded(max_num_seqs=1)
    for name in "ab":
        engine.add(request(name, [1, 2, 3], greedy(6)))
    step(engine)
    (stats,) = engine.abort("b")
    assert (stats.num_generation_tokens, stats.num_cached_tokens) == (0, 0)
    assert set(run(engine, []).results) == {("a", 0)}
    assert drafter.forgotten == {0, 1}


def test_an_abort_ends_all_choices_that_still_run() -> None:
    engine, drafter = recorded()
    engine.add(request("a", [1, 2, 3], sampled(40, n=3, seed=1, stop_token_ids=list(range(0, 30, 3)))))
    found = Run()
    while not any(result.finish_reason for result in found.results.values()):
        step(engine, found)
    num_done = sum(result.finish_reason is not None for result in found.results.values())
    assert len(engine.abort("a")) == 3 - num_done
    assert drafter.forgotten == {0, 1, 2}
    check_idle(engine)
    assert not engine.has_work


def test_an_aborted_leader_takes_its_choices_along() -> None:
    engine, _ = recorded(budget=4)
    engine.add(request("a", list(range(10)), sampled(4, n=2)))
    step(engine)
    assert len(engine.abort("a")) == 2
    check_idle(engine)


# --- failure ----------------------------------------------------------------------------------


class BrokenTarget(StubModel):
    """Raises in the forward pass while `is_broken`."""

    is_broken = False

    def forward(self, *args: object, **more: object) -> object:  # type: ignore[override]
        if self.is_broken:
            raise RuntimeError("no more memory")
        return super().forward(*args, **more)  # type: ignore[arg-type]


def failed(engine: Engine, pattern: str) -> Run:
    """Step until it breaks, and what comes out of that."""

    def step_on() -> None:
        for _ in range(100):
            engine.step()

    with pytest.raises(RuntimeError, match=pattern) as caught:
        step_on()
    found = Run()
    for output in engine.fail(caught.value):
        found.results.setdefault((output.request_id, output.index), Result()).add(output)
    return found


def test_a_failed_step_ends_its_requests_and_only_those() -> None:
    model = BrokenTarget()
    drafter = Recording(self_draft(model), 4, model)
    engine = make_engine(model, drafter, max_num_seqs=2)
    for name in "abc":
        engine.add(request(name, [1, 2, ord(name) % 31], greedy(8, ignore_eos=True)))
    step(engine)
    model.is_broken = True
    found = failed(engine, "no more memory")
    assert {name: r.finish_reason for (name, _), r in found.results.items()} == {"a": "error", "b": "error"}
    assert found["a"].last.stats is not None
    assert drafter.forgotten == {0, 1}
    assert engine.scheduler.pages.num_free == engine.scheduler.pages.num_pages
    model.is_broken = False
    rest = run(engine, [])
    assert rest["c"].token_ids == model.continuation([1, 2, ord("c") % 31], 8)


def test_a_failed_request_loses_all_its_choices() -> None:
    model = BrokenTarget()
    engine = make_engine(model, Recording(self_draft(model), 4, model), budget=4)
    engine.add(request("a", list(range(9)), sampled(5, n=3, seed=1)))
    step(engine)
    model.is_broken = True
    found = failed(engine, "no more memory")
    assert {key: result.finish_reason for key, result in found.results.items()} == {
        ("a", index): "error" for index in range(3)
    }
    check_idle(engine)


@pytest.mark.parametrize("number", range(6))
def test_a_drafter_that_breaks_costs_the_step_and_no_more(number: int) -> None:
    drafter = Recording(raises_sometimes(self_draft(MODEL), lambda call: call == number), 4, MODEL)
    engine = make_engine(MODEL, drafter, tokenizer=letters())
    engine.add(request("short", [1], greedy(2, ignore_eos=True)))
    engine.add(request("a", [1, 2, 3], greedy(20, ignore_eos=True)))
    engine.add(request("b", [1, 2, 4], sampled(20, n=2, seed=1, ignore_eos=True)))
    found = failed(engine, "the drafter broke")
    assert {result.finish_reason for result in found.results.values()} == {"error"}
    assert drafter.forgotten == set(range(4))
    assert not engine.has_work
    check_idle(engine)
    after = run(engine, [request("c", [1, 2, 3], greedy(9, ignore_eos=True))])
    assert after["c"].token_ids == MODEL.continuation([1, 2, 3], 9)


def test_choices_that_ended_before_a_failure_keep_their_reason() -> None:
    drafter = Recording(self_draft(MODEL), 4, MODEL)
    engine = make_engine(MODEL, drafter)
    engine.add(request("a", [1, 2, 3], sampled(40, n=3, seed=1, stop_token_ids=list(range(0, 30, 3)))))
    found = Run()
    while not any(result.finish_reason for result in found.results.values()):
        step(engine, found)
    engine.scheduler.plan = broken_plan  # type: ignore[method-assign]
    rest = failed(engine, "cannot plan")
    ended = {key for key, result in found.results.items() if result.finish_reason == "stop"}
    assert set(rest.results) == set(found.results) - ended
    assert drafter.forgotten == {0, 1, 2}
    check_idle(engine)


def broken_plan() -> None:
    raise RuntimeError("cannot plan")


def test_when_planning_fails_all_end_those_who_wait_included() -> None:
    engine, drafter = recorded(max_num_seqs=1)
    for name in "ab":
        engine.add(request(name, [1, 2, 3], greedy(9, ignore_eos=True)))
    step(engine)
    engine.scheduler.plan = broken_plan  # type: ignore[method-assign]
    found = failed(engine, "cannot plan")
    assert {name: result.finish_reason for (name, _), result in found.results.items()} == dict.fromkeys(
        "ab", "error"
    )
    assert drafter.forgotten == {0, 1}
    check_idle(engine)


def test_an_empty_plan_is_not_mistaken_for_the_one_that_failed() -> None:
    engine, _ = recorded()
    engine.add(request("a", [1, 2, 3], greedy(9, ignore_eos=True)))
    step(engine)
    engine.scheduler.plan = Plan  # type: ignore[method-assign, assignment]
    assert engine.step().outputs == []
    engine.scheduler.plan = broken_plan  # type: ignore[method-assign]
    assert failed(engine, "cannot plan")["a"].finish_reason == "error"
