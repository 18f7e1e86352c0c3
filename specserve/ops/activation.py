"""Gated activation: act(gate) * up."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Activation = Literal["silu", "gelu_tanh"]


def reference(gate_up: Tensor, kind: Activation) -> Tensor:
    """gate_up [n, 2 f], the gate's half first: [n, f]."""
    gate, up = gate_up.chunk(2, dim=-1)
    active = F.silu(gate) if kind == "silu" else F.gelu(gate, approximate="tanh")
    return active * up
