"""Overhead is what a step takes outside the ops, counted in steps where everybody decodes."""

from __future__ import annotations

from specserve.bench.overhead import measure_overhead, prompts
from specserve.ops import OpTimer, reference_ops, timed
from tests.support.engine import make_engine
from tests.support.stub import StubModel


def test_only_steps_in_which_all_decode_are_counted() -> None:
    ops, timer = timed(reference_ops())
    engine = make_engine(StubModel(), budget=96, ops=ops)  # all prompts in one step
    found = measure_overhead(engine, timer, 3, 8)
    assert found.num_requests == 3
    assert found.num_steps == 6  # 8 tokens: the first is the prompt's, the last finishes
    assert not engine.has_work


def test_time_inside_ops_is_no_overhead() -> None:
    class Clockwork(OpTimer):
        """Claims that ops took an hour of every step."""

        def reset(self) -> None:
            self.seconds = 3600.0

    found = measure_overhead(make_engine(StubModel()), Clockwork(), 1, 8)
    assert found.median_ms < 0 < found.step_ms
    assert found.ops_ms == 3600e3


def test_prompts_differ_and_repeat_with_their_seed() -> None:
    assert prompts(1, 2, 4096) == prompts(1, 2, 4096)
    assert prompts(1, 2, 4096)[0] != prompts(1, 2, 4096)[1]
    assert prompts(1, 1, 4096) != prompts(2, 1, 4096)
