"""Rows of a table, scaled in the table's dtype."""

from __future__ import annotations

import torch

from specserve.ops import embed


def test_rows_come_in_the_order_of_the_ids() -> None:
    table = torch.arange(12.0).view(4, 3)
    assert embed.reference(table, torch.tensor([3, 0, 3]), 1.0).tolist() == [
        [9, 10, 11],
        [0, 1, 2],
        [9, 10, 11],
    ]
    assert embed.reference(table, torch.tensor([], dtype=torch.int64), 2.0).shape == (0, 3)


def test_the_scale_is_rounded_first() -> None:
    table = torch.ones(1, 1, dtype=torch.bfloat16)
    assert embed.reference(table, torch.tensor([0]), 33.94112549695428).item() == 34.0  # sqrt(1152)
    assert (
        embed.reference(table.float(), torch.tensor([0]), 33.94112549695428).item()
        == torch.tensor(1152.0).sqrt()
    )
