"""The forward pass over a step's rows."""

from __future__ import annotations

import pytest
import torch

from specserve.engine.batch import build_batch
from specserve.kv.pool import allocate
from specserve.models.runner import PROMPT_LOGITS_ROWS, EagerRunner, logits_in_parts
from specserve.types import KVShape
from tests.support.desk import Desk
from tests.support.stub import StubModel

MODEL = StubModel()


def runner(features: tuple[int, ...] = ()) -> EagerRunner:
    """A target with one layer, and a drafter's layer behind it that the target must not see."""
    shapes = [*MODEL.layers, KVShape(2, 3, torch.float16)]
    return EagerRunner(MODEL, allocate(shapes, 32, 4, torch.device("cpu")), features)


def test_logits_are_those_of_the_asked_rows() -> None:
    desk = Desk()
    desk.add("a", [1, 2, 3])
    desk.add("b", [4, 5])
    batch = build_batch(desk.scheduler.plan(), 4, 32)
    eager = runner(features=(1,))
    rows = eager.forward(batch, [2, 4])
    assert rows.logits.tolist() == [MODEL.row([1, 2, 3]).tolist(), MODEL.row([4, 5]).tolist()]
    assert rows.features is not None
    assert torch.equal(rows.features, eager.logits_at([0, 1, 2, 3, 4]) + 1)
    assert runner().forward(batch, [0, 1, 2, 3, 4]).features is None


def test_further_logits_of_a_step_come_in_parts() -> None:
    desk = Desk(max_num_batched_tokens=200, num_pages=64, max_model_len=200)
    desk.add("a", [1 + i % 7 for i in range(150)])
    eager = EagerRunner(MODEL, allocate(MODEL.layers, 64, 4, torch.device("cpu")))
    eager.forward(build_batch(desk.scheduler.plan(), 4, 32), [149])
    parts = list(logits_in_parts(eager, 10, 150))
    assert [len(part) for part in parts] == [PROMPT_LOGITS_ROWS, PROMPT_LOGITS_ROWS, 12]
    assert torch.equal(torch.cat(parts), eager.logits_at(list(range(10, 150))))


def test_further_logits_need_a_step() -> None:
    with pytest.raises(RuntimeError, match="no step"):
        runner().logits_at([0])
