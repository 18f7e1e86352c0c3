"""The forward pass over a step's rows."""

from __future__ import annotations

import torch

from specserve.engine.batch import build_batch
from specserve.engine.runner import PROMPT_LOGITS_ROWS, Runner
from specserve.kv.pool import allocate
from specserve.types import KVShape
from tests.support.desk import Desk
from tests.support.stub import StubModel

MODEL = StubModel()


def runner(features: tuple[int, ...] = ()) -> Runner:
    """A target with one layer, and a drafter's layer behind it that the target must not see."""
    shapes = [*MODEL.layers, KVShape(2, 3, torch.float16)]
    return Runner(MODEL, allocate(shapes, 32, 4, torch.device("cpu")), features)


def test_logits_are_those_of_the_asked_rows() -> None:
    desk = Desk()
    desk.add("a", [1, 2, 3])
    desk.add("b", [4, 5])
    batch = build_batch(desk.scheduler.plan(), 4, 32, torch.device("cpu"))
    rows = runner(features=(1,)).forward(batch, [2, 4])
    assert rows.logits.tolist() == [MODEL.row([1, 2, 3]).tolist(), MODEL.row([4, 5]).tolist()]
    assert rows.hidden.shape == (5, 32)
    assert rows.features is not None
    assert torch.equal(rows.features, rows.hidden + 1)
    assert runner().forward(batch, [0, 1, 2, 3, 4]).features is None


def test_many_logits_come_in_parts() -> None:
    hidden = torch.arange(150 * 32, dtype=torch.float32).view(150, 32)
    parts = list(runner().logits_in_parts(hidden))
    assert [len(part) for part in parts] == [
        PROMPT_LOGITS_ROWS,
        PROMPT_LOGITS_ROWS,
        150 - 2 * PROMPT_LOGITS_ROWS,
    ]
    assert torch.equal(torch.cat(parts), hidden)
