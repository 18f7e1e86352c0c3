"""How often each token occurred in a text, kept up to date instead of counted anew; penalties read it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class TokenCounts:
    """Distinct ids of a prompt and of a growing output, with their counts in the output.

    Pass the prompt only if it matters (repetition penalty). Ids outside the vocabulary are ignored. The cost
    of a step grows with its new tokens and the distinct ids, not with the text.
    """

    def __init__(self, prompt_token_ids: Sequence[int], vocab_size: int) -> None:
        prompt = np.unique(np.asarray(prompt_token_ids, np.int64))
        self._prompt = prompt[(prompt >= 0) & (prompt < vocab_size)]
        self._vocab_size = vocab_size
        self._restart()

    def _restart(self) -> None:
        self._num_counted = 0
        self._places = {token: place for place, token in enumerate(self._prompt.tolist())}
        self._ids = self._prompt.copy()  # the prompt's first; both arrays may be longer than the dict
        self._counts = np.zeros_like(self._ids)

    def entries(self, output: Sequence[int], draft: Sequence[int]) -> tuple[Ints, Ints, Ints]:
        """(rows, ids, counts), each [N], of the 1 + len(draft) rows that follow `output`.

        Row i has one entry for each id in prompt + output + draft[:i], with its count in output + draft[:i].
        `output` is the same text each time, longer or not; a shorter one is counted anew.
        """
        self._catch_up(output)
        known = len(self._places)
        fresh: dict[int, int] = {}
        drafted = [self._draft_place(token, fresh) for token in draft]
        counts = np.zeros((1 + len(draft), known + len(fresh)), np.int64)
        counts[:, :known] = self._counts[:known]
        for row, place in enumerate(drafted):
            if place is not None:
                counts[row + 1 :, place] += 1
        is_seen = counts > 0
        is_seen[:, : len(self._prompt)] = True
        rows, columns = np.nonzero(is_seen)
        ids = np.concatenate([self._ids[:known], np.fromiter(fresh, np.int64, len(fresh))])
        return rows, ids[columns], counts[is_seen]

    def _catch_up(self, output: Sequence[int]) -> None:
        if len(output) < self._num_counted:
            self._restart()
        for token in output[self._num_counted :]:
            if 0 <= token < self._vocab_size:
                self._count(token)
        self._num_counted = len(output)

    def _count(self, token: int) -> None:
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros(place + 16, np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros(place + 16, np.int64)])
        self._ids[place] = token
        self._counts[place] += 1

    def _draft_place(self, token: int, fresh: dict[int, int]) -> int | None:
        if not 0 <= token < self._vocab_size:
            return None
        place = self._places.get(token)
        return fresh.setdefault(token, len(self._places) + len(fresh)) if place is None else place
