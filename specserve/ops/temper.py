"""Division of logits by the temperature: the softmax becomes flatter above 1, surer of itself below."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def reference(logits: Tensor, temperatures: Sequence[float]) -> Tensor:
    """`logits` [R, V] float32, each row divided by its temperature, in place, and returned.

    1 changes nothing, and neither does 0: such rows are greedy.
    """
    for row, temperature in zip(logits, temperatures, strict=True):
        if temperature not in (0.0, 1.0):
            row.div_(temperature)
    return logits
