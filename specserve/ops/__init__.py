"""The mathematics: tensors in, tensors out. One file per op, each with a slow `reference`.

Networks, samplers and verifiers import no op: they are handed an `Ops` table, so a second implementation
(native, recorded, timed) drops in without touching them. `reference_ops()` is PyTorch on any device; it
promises tolerance, not bitwise equality.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from time import perf_counter
from typing import Any

from torch import Tensor

from specserve.ops import (
    accept,
    activation,
    attention,
    draw,
    embed,
    linear,
    logprobs,
    norm,
    penalties,
    temper,
    truncate,
)
from specserve.ops.activation import Activation
from specserve.ops.attention import Attention, Plan
from specserve.ops.linear import Weight
from specserve.types import LayerCache, Rows

__all__ = ["Activation", "Attention", "OpTimer", "Ops", "Plan", "Weight", "reference_ops", "timed"]


@dataclass(frozen=True)
class Ops:
    """n rows of width d; R logits rows over V ids. The functions' docstrings are those of `reference`."""

    # Networks.
    plan: Callable[[Rows], Plan]
    embed: Callable[[Weight, Tensor, float], Tensor]
    linear: Callable[[Tensor, Weight, Tensor | None], Tensor]
    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    attention: Callable[[Tensor, Attention, LayerCache, Plan], Tensor]
    gated: Callable[[Tensor, Activation], Tensor]
    add: Callable[[Tensor, Tensor], Tensor]
    keep: Callable[[Tensor], Tensor]  # the same, to be read after what comes later
    mark: Callable[[Tensor], Tensor]  # the same; where a recorded program can be cut, for a collective
    run_program: Callable[..., float]  # a recorded network, native: (program, its arguments) to its seconds
    # Sampling.
    penalize: Callable[..., Tensor]
    temper: Callable[[Tensor, Sequence[float]], Tensor]
    truncate: Callable[..., Tensor]
    draw: Callable[..., Tensor]
    accept: Callable[..., tuple[list[int], list[int]]]
    logprobs: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]


def reference_ops() -> Ops:
    return Ops(
        plan=attention.plan,
        embed=embed.reference,
        linear=linear.reference,
        rms_norm=norm.reference,
        attention=attention.reference,
        gated=activation.reference,
        add=Tensor.add,
        keep=lambda x: x,
        mark=lambda x: x,
        run_program=lambda program, *arguments: program.run(*arguments),
        penalize=penalties.reference,
        temper=temper.reference,
        truncate=truncate.reference,
        draw=draw.reference,
        accept=accept.reference,
        logprobs=logprobs.reference,
    )


@dataclass(slots=True)
class OpTimer:
    """Seconds of wall clock spent inside ops since `reset`."""

    seconds: float = 0.0

    def reset(self) -> None:
        self.seconds = 0.0


def timed(ops: Ops, timer: OpTimer | None = None) -> tuple[Ops, OpTimer]:
    """The same ops, with a timer around each: `timer`, or a new one."""
    timer = timer or OpTimer()

    def around(op: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(op)
        def run(*arguments: Any) -> Any:
            began = perf_counter()
            try:
                return op(*arguments)
            finally:
                timer.seconds += perf_counter() - began

        return run

    return Ops(**{f.name: around(getattr(ops, f.name)) for f in fields(ops)}), timer
