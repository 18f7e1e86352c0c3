"""Target steps of a chosen size, through the engine as it serves, and rounds of them.

A step of m rows is one decoding request with m - 1 guesses, as a drafter would have left them. The guesses
are no ids of the vocabulary, so that the target refuses them whatever it says. Every step has a request of
its own: its prompt is found in shared pages but for its last tokens, and the step sees the same context each
time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from time import monotonic, perf_counter
from typing import TypeVar

from specserve.bench.kernels_counts import StepShape
from specserve.engine.engine import Engine
from specserve.models.runner import NativeRunner
from specserve.ops import Ops, OpTimer, reference_ops, timed
from specserve.ops.native import WeightClass
from specserve.ops.probe import Probes
from specserve.ops.program import Program
from specserve.types import Request, SamplingParams, StepStats

NETWORK = (
    "plan",
    "embed",
    "linear",
    "rms_norm",
    "attention",
    "gated",
    "add",
    "keep",
    "mark",
    "run_program",
)
PEAKS: tuple[WeightClass, ...] = ("float32", "int8", "int4")  # bfloat16 is multiplied as float32

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: a step of `num_rows` rows after `start` tokens, or a whole prompt, in as many steps
    as the engine makes of it."""

    num_rows: int
    start: int = 0
    is_prompt: bool = False


@dataclass(slots=True)
class Sample:
    """One measurement, seconds. `target`: from the plan to the logits. `network`: inside the network's ops,
    which is one native call per step. `ops`: each native op, in a timed run."""

    step: float = 0.0
    target: float = 0.0
    network: float = 0.0
    ops: list[float] = field(default_factory=list)
    shapes: list[StepShape] = field(default_factory=list)

    @property
    def host(self) -> float:
        return self.step - self.network


@dataclass(slots=True)
class Measured:
    """All samples in the order of the rounds; timed runs are apart, since looking costs time too. `read` in
    bytes per second, `multiply` in multiplications per second."""

    steps: dict[Case, list[Sample]] = field(default_factory=dict)
    timed: dict[Case, list[Sample]] = field(default_factory=dict)
    read: list[float] = field(default_factory=list)
    multiply: dict[WeightClass, list[float]] = field(default_factory=dict)


def network_timer() -> tuple[Ops, OpTimer]:
    """Ops whose timer counts the network's share of a step, sampling left out."""
    around, timer = timed(reference_ops())
    return replace(reference_ops(), **{name: getattr(around, name) for name in NETWORK}), timer


def program_of(engine: Engine) -> Program | None:
    """None: the runner calls PyTorch ops one by one."""
    return engine.runner.program if isinstance(engine.runner, NativeRunner) else None


class StepMeter:
    """Runs one case at a time on an engine that is otherwise idle. `timer` is that of the engine's ops."""

    def __init__(self, engine: Engine, timer: OpTimer) -> None:
        self._engine = engine
        self._timer = timer
        self._num_requests = 0

    def measure(self, case: Case) -> Sample:
        return self._prompt(case) if case.is_prompt else self._rows(case)

    def _rows(self, case: Case) -> Sample:
        name = self._add(case.start, "", max_tokens=case.num_rows + 2)
        while not self._engine.step().outputs:
            pass
        [seq] = self._engine.scheduler.running
        seq.draft = [self._vocab_size] * (case.num_rows - 1)
        sample = Sample()
        self._step(sample, case.start, num_wanted=case.num_rows)
        self._engine.abort(name)
        _expect(sample.shapes == [StepShape(case.start, case.start + case.num_rows, case.num_rows)])
        return sample

    def _prompt(self, case: Case) -> Sample:
        """A tenant of its own: none of its pages are shared."""
        name = self._add(case.num_rows, f"prompt-{self._num_requests}", max_tokens=2)
        sample = Sample()
        done = 0
        while done < case.num_rows:
            done += self._step(sample, done, num_wanted=0).num_rows
        last = sample.shapes[-1]
        sample.shapes[-1] = replace(last, num_wanted=1)
        self._engine.abort(name)
        _expect(done == case.num_rows)
        return sample

    def _add(self, num_tokens: int, tenant: str, max_tokens: int) -> str:
        self._num_requests += 1
        name = f"kernels-{self._num_requests}"
        tokens = Random(num_tokens).choices(range(self._vocab_size), k=num_tokens)
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        self._engine.add(Request(name, tokens, params, monotonic(), tenant=tenant))
        return name

    def _step(self, sample: Sample, start: int, num_wanted: int) -> StepStats:
        self._timer.reset()
        began = perf_counter()
        stats = self._engine.step().stats
        sample.step += perf_counter() - began
        sample.target += stats.forward_seconds
        sample.network += self._timer.seconds
        sample.shapes.append(StepShape(start, start + stats.num_rows, num_wanted))
        program = program_of(self._engine)
        if program is not None:
            seconds = program.op_seconds
            sample.ops = [a + b for a, b in zip(sample.ops, seconds, strict=True)] if sample.ops else seconds
        return stats

    @property
    def _vocab_size(self) -> int:
        return self._engine.runner.model.vocab_size


def in_turn(items: Sequence[T], number: int) -> Sequence[T]:
    """The order of round `number`: forwards and backwards by turns, so that a drift of the machine meets the
    first as much as the last."""
    return items if number % 2 == 0 else items[::-1]


def run_rounds(
    meter: StepMeter, program: Program | None, probes: Probes | None, cases: Sequence[Case], iterations: int
) -> Iterator[Measured]:
    """Yields what is measured so far after each round; the first round is a warm-up and counts nothing."""
    measured = Measured({c: [] for c in cases}, {c: [] for c in cases}, [], {kind: [] for kind in PEAKS})
    for number in range(iterations + 1):
        found = Measured()
        _probe(probes, found)
        found.steps = {case: [meter.measure(case)] for case in in_turn(cases, number)}
        if program is not None:
            _probe(probes, found)
            program.set_timed(True)
            found.timed = {case: [meter.measure(case)] for case in in_turn(cases, number)}
            program.set_timed(False)
        if number:
            _gather(measured, found)
        yield measured


def _probe(probes: Probes | None, found: Measured) -> None:
    if probes is None:
        return
    found.read.append(probes.read())
    for kind in PEAKS:
        found.multiply.setdefault(kind, []).append(probes.multiply(kind))


def _gather(measured: Measured, found: Measured) -> None:
    measured.read += found.read
    for kind, rates in found.multiply.items():
        measured.multiply[kind] += rates
    for case, samples in found.steps.items():
        measured.steps[case] += samples
    for case, samples in found.timed.items():
        measured.timed[case] += samples


def _expect(is_so: bool) -> None:
    if not is_so:
        raise RuntimeError("the engine did not run the step that was to be measured")
