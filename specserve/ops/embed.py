"""Rows of the embedding table, scaled."""

from __future__ import annotations

from torch import Tensor

from specserve.ops.linear import Weight, as_tensor


def reference(table: Weight, ids: Tensor, scale: float) -> Tensor:
    """[n, d] rows of `table` [V, d] for `ids` [n] int64, times `scale` (rounded to the table's dtype first,
    as Gemma does)."""
    rows = as_tensor(table)[ids]
    return rows if scale == 1.0 else rows * rows.new_tensor(scale)
