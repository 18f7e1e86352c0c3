"""How many guesses to ask for. Zero is a legal answer."""

from __future__ import annotations

from specserve.config.scheduler import SchedulerConfig
from specserve.engine.sequence import Sequence


class DraftLength:
    """`by_batch_size[r]` is the number of drafts per sequence while r are running (index 0 unused)."""

    def __init__(self, by_batch_size: list[int], config: SchedulerConfig) -> None:
        self._by_batch_size = by_batch_size
        self._config = config

    def base(self, num_running: int) -> int:
        """The same for all sequences: the table's entry, less what one step's rows cannot hold."""
        if not num_running:
            return 0
        asked = self._by_batch_size[min(num_running, len(self._by_batch_size) - 1)]
        return max(0, min(asked, self._config.max_num_batched_tokens // num_running - 1))

    def limit(self, seq: Sequence, base: int, num_free_slots: int) -> int:
        """`base` cut to what max_tokens (and so the context) and the free pages still allow this sequence.

        A step emits one token more than it keeps drafts.
        """
        left = seq.max_tokens - len(seq.output) - 1
        slots = len(seq.table.pages) * self._config.page_size + num_free_slots - len(seq.tokens)
        return max(0, min(base, left, slots))
