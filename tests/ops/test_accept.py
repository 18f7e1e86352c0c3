"""The accept test against drawing one row after the other; the published vectors of equality."""

from __future__ import annotations

import pytest
import torch

from specserve.ops import accept, draw
from specserve.ops.philox import DRAFT, TARGET

VECTORS = [  # drafts, the target's own token per row, accepted, next tokens
    ([[1, 2, 3]], [1, 2, 3, 4], [3], [4]),
    ([[1, 2, 3]], [1, 5, 3, 4], [1], [5]),
    ([[1, 2], [3]], [1, 2, 5, 3, 4], [2, 1], [5, 4]),
    ([[]], [5], [0], [5]),
    ([[1, 2, 3], [4, 5, 6]], [1, 2, 7, 6, 4, 8, 6, 9], [2, 1], [7, 8]),
    ([[99, 2], [-1, 2], [2, 2**40]], [1, 2, 3, 1, 2, 3, 2, 1, 3], [0, 0, 1], [1, 1, 1]),
    ([], [], [], []),
]


@pytest.mark.parametrize(("drafts", "own", "accepted", "next_tokens"), VECTORS)
def test_a_draft_is_kept_up_to_its_first_difference(
    drafts: list[list[int]], own: list[int], accepted: list[int], next_tokens: list[int]
) -> None:
    assert accept.match(drafts, own) == (accepted, next_tokens)
    logits = torch.nn.functional.one_hot(torch.tensor(own, dtype=torch.int64), 10).float()
    keys = [0.0] * len(drafts), [7] * len(drafts), [1] * len(drafts)
    assert accept.reference(logits, drafts, *keys, TARGET) == (accepted, next_tokens)


@pytest.mark.parametrize("purpose", [TARGET, DRAFT])
def test_each_row_is_drawn_at_its_own_index(purpose: int) -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    own = [int(draw.reference(logits[j : j + 1], [0.8], [2**63 + 9], [20 + j], purpose)[0]) for j in range(4)]
    for kept in range(4):
        drafted = [own[j] if j < kept else (own[j] + 1) % 50 for j in range(3)]
        found = accept.reference(logits, [drafted], [0.8], [2**63 + 9], [20], purpose)
        assert found == ([kept], [own[kept]])


def test_rows_behind_a_refusal_change_nothing() -> None:
    logits = torch.zeros(3, 5)
    logits[0, 2] = 9.0
    found = accept.reference(logits, [[1, 4]], [0.0], [0], [0], TARGET)
    logits[1:] = torch.nan
    assert found == accept.reference(logits, [[1, 4]], [0.0], [0], [0], TARGET) == ([0], [2])
