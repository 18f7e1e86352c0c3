"""Steps are of the size asked for, at the context asked for, and take turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from specserve.bench.kernels_counts import StepShape
from specserve.bench.kernels_steps import (
    NETWORK,
    Case,
    Measured,
    Sample,
    StepMeter,
    in_turn,
    network_timer,
    program_of,
    run_rounds,
)
from specserve.engine.engine import Engine
from specserve.ops import Ops, OpTimer
from specserve.ops.record import Recorder
from tests.support.engine import make_engine
from tests.support.native import library
from tests.support.stub import StubModel
from tests.support.tiny import deploy_tiny, write_tiny

A, B, C = Case(1, 4), Case(2, 4), Case(3, is_prompt=True)


@pytest.fixture(params=["native", "eager"])
def metered(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Engine, OpTimer, StepMeter]:
    options: dict[str, Any] = {"max_num_batched_tokens": 48}
    if request.param == "native":
        library()
    else:
        options["enforce_eager"] = True
    ops, timer = network_timer()
    engine = deploy_tiny(write_tiny(tmp_path), options, ops=ops).engine
    return engine, timer, StepMeter(engine, timer)


@pytest.mark.parametrize("num_rows", [1, 2, 17])
def test_a_step_has_its_rows_behind_its_context(
    metered: tuple[Engine, OpTimer, StepMeter], num_rows: int
) -> None:
    engine, _, meter = metered
    for context in (1, 5, 70):  # the last one is longer than a page, and than one step's rows
        for _ in range(2):
            sample = meter.measure(Case(num_rows, context))
            assert sample.shapes == [StepShape(context, context + num_rows, num_rows)]
            assert 0.0 < sample.network < sample.target < sample.step
            assert sample.host == sample.step - sample.network
            assert not engine.has_work


def test_a_prompt_is_never_found_in_shared_pages(metered: tuple[Engine, OpTimer, StepMeter]) -> None:
    engine, _, meter = metered
    for _ in range(2):
        sample = meter.measure(Case(100, is_prompt=True))
        assert sample.shapes == [StepShape(0, 48, 0), StepShape(48, 96, 0), StepShape(96, 100, 1)]
        assert not engine.has_work


def test_ops_are_told_in_timed_runs_only(metered: tuple[Engine, OpTimer, StepMeter]) -> None:
    engine, _, meter = metered
    assert meter.measure(A).ops == []
    program = program_of(engine)
    if program is None:
        return
    program.set_timed(True)
    for case in (A, Case(100, is_prompt=True)):
        sample = meter.measure(case)
        assert len(sample.ops) == len(program.ops)
        assert all(seconds > 0.0 for seconds in sample.ops)
        assert sum(sample.ops) <= sample.network
    program.set_timed(False)
    assert meter.measure(A).ops == []


def test_an_engine_that_runs_other_steps_is_found_out() -> None:
    engine = make_engine(StubModel(), budget=4)
    with pytest.raises(RuntimeError, match="did not run the step"):
        StepMeter(engine, OpTimer()).measure(Case(6, 3))


def test_the_network_has_the_ops_that_can_be_recorded() -> None:
    recorder = Recorder().ops()
    recordable = {f.name for f in fields(Ops) if "not_in_a_network" not in getattr(recorder, f.name).__name__}
    assert set(NETWORK) == recordable | {"run_program"}


# --- rounds ---------------------------------------------------------------------------------------


class Journal:
    """Stands for meter, program and probes, and writes down who was asked what."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def measure(self, case: Case) -> Sample:
        self.lines.append(case)
        return Sample(step=len(self.lines))

    def set_timed(self, is_timed: bool) -> None:
        self.lines.append(is_timed)

    def read(self) -> float:
        self.lines.append("read")
        return float(len(self.lines))

    def multiply(self, weight_class: str) -> float:
        self.lines.append(weight_class)
        return 1.0


def finish(rounds: Iterator[Measured]) -> Measured:
    *_, last = rounds
    return last


PROBE = ["read", "float32", "int8", "int4"]


def test_all_cases_take_turns_with_probes_between_and_timed_runs_apart() -> None:
    journal: Any = Journal()
    finish(run_rounds(journal, journal, journal, [A, B, C], 2))
    forwards = [*PROBE, A, B, C, *PROBE, True, A, B, C, False]
    backwards = [*PROBE, C, B, A, *PROBE, True, C, B, A, False]
    assert journal.lines == forwards + backwards + forwards


def test_without_native_kernels_there_is_nothing_to_probe() -> None:
    journal: Any = Journal()
    measured = finish(run_rounds(journal, None, None, [A, B], 1))
    assert journal.lines == [A, B, B, A]
    assert measured.timed == {A: [], B: []}
    assert measured.read == []


def test_the_first_round_counts_nothing() -> None:
    journal: Any = Journal()
    measured = finish(run_rounds(journal, journal, journal, [A, B], 3))
    assert [len(samples) for samples in measured.steps.values()] == [3, 3]
    assert [len(samples) for samples in measured.timed.values()] == [3, 3]
    assert len(measured.read) == 6
    assert {kind: len(rates) for kind, rates in measured.multiply.items()} == {
        "float32": 6,
        "int8": 6,
        "int4": 6,
    }
    assert min(measured.read) > len([*PROBE, A, B, *PROBE, True, A, B, False])


def test_the_order_turns_around() -> None:
    assert [in_turn("abc", number) for number in range(3)] == ["abc", "cba", "abc"]
