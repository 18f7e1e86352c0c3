"""Equality with the target's own token: the published vectors."""

from __future__ import annotations

import pytest
import torch

from specserve.ops import reference_ops
from specserve.types import Draft, RowRng, SamplingRows
from specserve.verify import Verify, greedy, standard

VECTORS = [  # drafts, the target's own token per row, what is emitted
    ([[1, 2, 3]], [1, 2, 3, 4], [[1, 2, 3, 4]]),
    ([[1, 2, 3]], [1, 5, 3, 4], [[1, 5]]),
    ([[1, 2], [3]], [1, 2, 5, 3, 4], [[1, 2, 5], [3, 4]]),
    ([[1]], [1, 2], [[1, 2]]),
    ([[]], [5], [[5]]),
    ([[1, 2, 3], [4, 5, 6]], [1, 2, 7, 6, 4, 8, 6, 9], [[1, 2, 7], [4, 8]]),
    ([[99, 2], [-1, 2], [2, 2**40]], [1, 2, 3, 1, 2, 3, 2, 1, 3], [[1], [1], [2, 1]]),
    ([], [], []),
]


@pytest.mark.parametrize("verify", [greedy.verify, standard.verify])
@pytest.mark.parametrize(("drafts", "own", "emitted"), VECTORS)
def test_at_temperature_0_the_own_token_is_the_best(
    verify: Verify, drafts: list[list[int]], own: list[int], emitted: list[list[int]]
) -> None:
    logits = torch.nn.functional.one_hot(torch.tensor(own, dtype=torch.int64), 10).float()
    rng = RowRng([7] * len(drafts), [1] * len(drafts))
    verdict = verify(reference_ops(), logits, Draft(drafts), SamplingRows([0.0] * len(drafts)), rng)
    found = zip(drafts, verdict.accepted, verdict.next_tokens, strict=True)
    assert [[*draft[:kept], following] for draft, kept, following in found] == emitted


def test_recipe_25_the_first_guess_is_verified_too() -> None:
    """Prompt 1 1 1, lookup proposes 1, the target's best is 7."""
    logits = torch.zeros(2, 9)
    logits[0, 7], logits[1, 1] = 1.0, 1.0
    verdict = greedy.verify(reference_ops(), logits, Draft([[1]]), SamplingRows([0.0]), RowRng([0], [3]))
    assert (verdict.accepted, verdict.next_tokens) == ([0], [7])
