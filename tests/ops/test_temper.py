"""Division by the temperature, row by row."""

from __future__ import annotations

import numpy as np
import torch

from specserve.ops import temper


def test_each_row_is_divided_by_its_own_temperature_in_place() -> None:
    logits = torch.randn(5, 33, generator=torch.Generator().manual_seed(0))
    given = logits.clone().numpy()
    temperatures = [0.7, 0.0, 1.0, 1e-3, 2.0]
    assert temper.reference(logits, temperatures) is logits
    for row, temperature, found in zip(given, temperatures, logits.numpy(), strict=True):
        expected = row / np.float32(temperature) if temperature else row
        assert found.tobytes() == expected.tobytes(), temperature
