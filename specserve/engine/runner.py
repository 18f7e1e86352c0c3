"""The target's forward pass over a step's rows, and the log-probabilities of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specserve.models.base import CausalLM
from specserve.types import LayerCache, Rows

# A prompt chunk's logits at once would take rows x vocabulary x 4 bytes (100 MB for 512 rows of 49k ids).
PROMPT_LOGITS_ROWS = 64


@dataclass(frozen=True, slots=True)
class StepRows:
    """`logits` [R, V] float32 of the asked rows, unprocessed; `hidden` [num_rows, d] final-normed;
    `features` [num_rows, sum] when a drafter wants any."""

    logits: Tensor
    hidden: Tensor
    features: Tensor | None


class Runner:
    """Holds the target and the cache of target and drafter layers (target's first)."""

    def __init__(self, model: CausalLM, cache: Sequence[LayerCache], features: Sequence[int] = ()) -> None:
        self.model = model
        self.cache = cache
        self._features = tuple(features)

    @property
    def device(self) -> torch.device:
        return self.cache[0].keys.device

    def forward(self, rows: Rows, logits_rows: list[int]) -> StepRows:
        num_layers = len(self.model.layers)
        hidden, features = self.model.forward(rows, self.cache[:num_layers], self._features)
        wanted = hidden
        if len(logits_rows) != hidden.shape[0]:
            wanted = hidden[torch.tensor(logits_rows, dtype=torch.int64, device=hidden.device)]
        return StepRows(self.model.logits(wanted), hidden, features)

    def logits_in_parts(self, hidden: Tensor) -> Iterator[Tensor]:
        """Logits of many rows, a few at a time: each [≤ PROMPT_LOGITS_ROWS, V] float32."""
        for part in torch.split(hidden, PROMPT_LOGITS_ROWS):
            yield self.model.logits(part)
