"""Repetition, frequency and presence penalties on the ids a row has seen.

Repetition is CTRL's (Keskar et al., 2019); the other two are those of the OpenAI API.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def reference(
    logits: Tensor,
    rows: Tensor,
    ids: Tensor,
    counts: Tensor,
    repetition: Sequence[float],
    frequency: Sequence[float],
    presence: Sequence[float],
) -> Tensor:
    """`logits` [R, V] float32, penalised in place and returned.

    Entry e of `rows`, `ids`, `counts` [N] int64 says: the text before row `rows[e]` holds id `ids[e]`, and
    `counts[e]` times in its output (0: in the prompt only). A pair (row, id) occurs at most once. The
    penalties are per row of `logits` (1, 0, 0: off). A positive logit is divided by the repetition penalty,
    another one multiplied; then frequency * count is subtracted, then presence if count > 0.
    """
    places = rows.to(logits.device), ids.to(logits.device)

    def per_entry(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=logits.device)[places[0]]

    factors = per_entry(repetition)
    occurrences = counts.to(logits.device, torch.float32)
    values = logits[places]
    values = torch.where(values > 0, values / factors, values * factors)
    values -= per_entry(frequency) * occurrences
    values -= per_entry(presence) * (occurrences > 0)
    logits[places] = values
    return logits
