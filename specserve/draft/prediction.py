"""Predicted outputs: the guess is what the request itself says its output may be like.

OpenAI's `prediction` (2024): whoever asks for a file with one line changed sends the file along. No weights,
no cache. The output is aligned with the prediction (`draft.alignment`); where it departs from it, nothing is
guessed until it is back. A request without a prediction is not guessed for.
"""

from __future__ import annotations

from dataclasses import dataclass

from specserve.draft.alignment import Alignment
from specserve.draft.base import SYNCED_ALWAYS
from specserve.draft.config_target import TargetInfo
from specserve.types import Ask, AskBatch, CommitBatch, Draft, Needs


@dataclass(frozen=True, slots=True)
class Options:
    """Nothing to choose."""


def build(_options: Options, _target: TargetInfo) -> PredictionDrafter:
    return PredictionDrafter()


class PredictionDrafter:
    """Reads text and prediction from the ask, so commits tell it nothing new."""

    needs = Needs(prediction=True)

    def __init__(self) -> None:
        self._alignments: dict[int, Alignment] = {}

    def observe(self, commits: CommitBatch) -> None:
        return

    def propose(self, asks: AskBatch) -> Draft:
        found = [self._aligned(ask) for ask in asks.asks]
        return Draft(
            [a.guess(ask.num_tokens) if a else [] for a, ask in zip(found, asks.asks, strict=True)],
            matches=[a.place.match if a and a.place else 0 for a in found],
        )

    def synced(self, seq_id: int) -> int:
        return SYNCED_ALWAYS

    def forget(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self._alignments.pop(seq_id, None)

    def _aligned(self, ask: Ask) -> Alignment | None:
        if not ask.predicted:
            return None
        found = self._alignments.get(ask.seq_id)
        if found is None:
            found = self._alignments[ask.seq_id] = Alignment(ask.predicted, ask.num_prompt)
        found.follow(ask.tokens)
        return found
