"""An engine with known times answers, and the times come out; nothing of a run stays in the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specserve.bench.acceptance import Acceptance
from specserve.bench.dataset import Question
from specserve.bench.offline import Job, OfflineAsker
from specserve.bench.offline_figures import PLAIN, plain, run_pair
from specserve.bench.serving_figures import Wanted, serving_figures
from specserve.types import Request, SamplingParams, StepOutputs
from tests.support.fake_engine import FakeEngine


class TimedEngine(FakeEngine):
    """Each step takes `seconds` of its own clock; it has room for `room` requests."""

    def __init__(self, seconds: float = 0.1, room: int = 64, **options: Any) -> None:
        super().__init__(**options)
        self.seconds, self.room = seconds, room
        self.now = 5.0

    def has_room_for(self, request: Request) -> bool:
        return len(self.running) < self.room

    def step(self) -> StepOutputs:
        self.now += self.seconds
        return super().step()


def jobs(count: int, num_tokens: int = 9, **params: Any) -> list[Job]:
    question = Question("x", "qa", num_tokens)
    given = SamplingParams(**{"temperature": 0.0, "max_tokens": num_tokens, "ignore_eos": True, **params})
    return [Job(replace(question, category=f"c{n % 2}"), [65 + n], given) for n in range(count)]


def asker(engine: TimedEngine) -> OfflineAsker:
    return OfflineAsker(engine, lambda: engine.now)  # type: ignore[arg-type]


def test_known_times_come_out() -> None:
    """Three tokens per step of 0.1 s: nine tokens in three steps."""
    run = asker(TimedEngine()).run(jobs(4))
    found = serving_figures(run.answers, run.duration, Wanted())
    expected = {
        "duration": 0.3,
        "completed": 4,
        "total_input_tokens": 4,
        "total_output_tokens": 36,
        "output_throughput": 120,
        "mean_ttft_ms": 100,
        "mean_tpot_ms": 200 / 8,
        "mean_itl_ms": 100,
        "mean_e2el_ms": 300,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    assert found["output_sha256_of"] == "ids"
    assert set(found["categories"]) == {"c0", "c1"}
    assert len(run.steps) == 3


def test_what_finds_no_room_waits() -> None:
    run = asker(TimedEngine(room=2)).run(jobs(5))
    assert [answer.sent for answer in run.answers] == pytest.approx([0, 0, 0.3, 0.3, 0.6])
    assert run.duration == pytest.approx(0.9)


def test_every_choice_is_an_answer() -> None:
    run = asker(TimedEngine()).run(jobs(2, n=3, temperature=1.0))
    assert [answer.num_output_tokens for answer in run.answers] == [9] * 6


def test_what_can_never_be_served_fails_alone() -> None:
    given = jobs(3)
    run = asker(TimedEngine()).run([given[0], replace(given[1], prompt=[]), given[2]])
    assert [answer.error for answer in run.answers] == ["", "prompt must hold at least one token.", ""]
    assert serving_figures(run.answers, run.duration, Wanted())["failed"] == 1


def test_an_engine_that_breaks_is_left_empty() -> None:
    engine = TimedEngine()
    engine.step_error = RuntimeError("broken")
    with pytest.raises(RuntimeError, match="broken"):
        asker(engine).run(jobs(3))
    assert not engine.has_work


def test_acceptance_comes_with_the_answer() -> None:
    run = asker(TimedEngine(num_spec_tokens=2)).run(jobs(1))
    assert run.answers[0].acceptance == Acceptance(3, 6, 6, (3, 3))


def test_each_answer_is_told_once() -> None:
    told: list[int] = []
    asker(TimedEngine()).run(jobs(3), lambda: told.append(1))
    assert len(told) == 3


def test_the_plain_run_shares_nothing_and_guesses_nothing() -> None:
    other = plain(jobs(1)[0])
    assert (other.params.speculation, other.tenant) == ({"enabled": False}, PLAIN)


@pytest.mark.parametrize(("number", "order"), [(0, ["", PLAIN]), (1, [PLAIN, ""])])
def test_the_two_runs_take_turns(number: int, order: list[str]) -> None:
    engine = TimedEngine()
    pair = run_pair(asker(engine), jobs(1), number, baseline=True)
    assert [request.tenant for request in engine.requests] == order
    assert pair.plain is not None
    assert pair.own.answers[0].ids == pair.plain.answers[0].ids
    assert run_pair(asker(engine), jobs(1), number, baseline=False).plain is None
