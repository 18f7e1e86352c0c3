"""The table of ops: complete, and a timer that changes nothing but its own seconds."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from specserve.ops import Ops, reference_ops, timed


def test_every_op_has_a_reference() -> None:
    ops = reference_ops()
    assert all(callable(getattr(ops, field.name)) for field in fields(Ops))


def test_timed_ops_answer_the_same_and_add_up() -> None:
    ops, timer = timed(reference_ops())
    x = torch.ones(2, 3)
    assert torch.equal(ops.add(x, x), x + x)
    assert torch.equal(ops.linear(x, torch.ones(1, 3), None), torch.full((2, 1), 3.0))
    assert timer.seconds > 0.0
    timer.reset()
    assert timer.seconds == 0.0


def test_an_op_that_fails_is_timed_and_fails() -> None:
    ops, timer = timed(reference_ops())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ops.linear(torch.ones(2, 3), torch.ones(1, 4), None)
    assert timer.seconds > 0.0
