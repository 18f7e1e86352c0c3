"""Guesses from what a request says its output may be like."""

from __future__ import annotations

from specserve.draft.config import TargetInfo
from specserve.draft.prediction import Options, PredictionDrafter, build
from specserve.types import Ask, AskBatch
from tests.contract.drafter import state_size

TARGET = TargetInfo(model="org/target", vocab_size=1000, max_model_len=2048, num_layers=8, hidden_size=64)


def ask(seq_id: int, tokens: list[int], predicted: list[int], num_tokens: int = 4) -> Ask:
    """About a text whose prompt is its first two tokens."""
    return Ask(seq_id, tokens, num_tokens, 0.0, 0, num_prompt=2, predicted=predicted)


def test_guesses_are_what_is_predicted_next() -> None:
    draft = build(Options(), TARGET).propose(
        AskBatch([ask(0, [7, 7, 1], [1, 2, 3, 4, 5, 6, 7]), ask(1, [7, 7], []), ask(2, [7, 7, 8], [1, 2])])
    )
    assert draft.tokens == [[2, 3, 4, 5], [], []]
    assert draft.matches == [9, 0, 0]
    assert draft.q is None


def test_texts_are_followed_side_by_side_and_forgotten() -> None:
    drafter = PredictionDrafter()
    empty = state_size(drafter)
    predicted = list(range(100, 120))
    for length in (1, 2, 6):
        tokens = [0, 0, *predicted[:length]]
        draft = drafter.propose(AskBatch([ask(3, tokens, predicted), ask(4, [0, 0, 110, 111], predicted)]))
        assert draft.tokens == [predicted[length : length + 4], [112, 113, 114, 115]]
    drafter.forget([3, 4, 5])
    assert state_size(drafter) == empty
