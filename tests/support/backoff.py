"""A drafter's law that costs no network: an n-gram model with a few thousand ids, counted from texts.

    q_0 even,  q_n(x | last n tokens c) = (count(c, x) + w q_{n-1}(x | last n - 1 tokens)) / (count(c) + w)

(MacKay and Peto, "A hierarchical Dirichlet language model", 1995). After a context seen often it is as peaked
as the texts were, elsewhere nearly flat; every id of the texts has some probability everywhere.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]


class Backoff:
    """`ids` [Vd] are the ids that occur in `texts`, ascending; n goes up to `order`."""

    def __init__(self, texts: Sequence[Sequence[int]], order: int = 3, weight: float = 2.0) -> None:
        self.ids = torch.tensor(sorted({token for text in texts for token in text}))
        self._order = order
        self._weight = weight
        self._after = self._count(texts)

    def _count(
        self, texts: Sequence[Sequence[int]]
    ) -> dict[tuple[int, ...], tuple[NDArray[np.int64], Floats]]:
        """Columns and counts of what followed each context."""
        column_of = {token: column for column, token in enumerate(self.ids.tolist())}
        counters: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for text in texts:
            for end, token in enumerate(text):
                for n in range(min(self._order, end) + 1):
                    counters[tuple(text[end - n : end])][column_of[token]] += 1
        return {
            context: (np.array(list(counter)), np.array(list(counter.values()), np.float32))
            for context, counter in counters.items()
        }

    def row(self, tokens: Sequence[int]) -> Floats:
        """[Vd]: ln q after `tokens`."""
        q = np.full(len(self.ids), 1 / len(self.ids), np.float32)
        for n in range(min(self._order, len(tokens)) + 1):
            found = self._after.get(tuple(tokens[len(tokens) - n :]))
            if found is None:
                break
            columns, counts = found
            total = counts.sum() + np.float32(self._weight)
            q *= np.float32(self._weight) / total
            q[columns] += counts / total
        return np.log(q)

    def rows(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """[n, Vd]: ln q after each text."""
        return torch.from_numpy(np.stack([self.row(text) for text in texts]))
