"""How many guesses to ask for. Zero is a legal answer."""

from __future__ import annotations

from dataclasses import dataclass

from specserve.config.scheduler import SchedulerConfig
from specserve.engine.sequence import Sequence
from specserve.errors import InvalidRequest
from specserve.types import Speculation


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the engine was started with: names a request may ask for, and the most guesses per step.

    The first of `methods` stands for all of them; `sources` are those that guess on their own.
    """

    methods: tuple[str, ...] = ()
    num_spec_tokens: int = 0
    sources: tuple[str, ...] = ()

    def num_for(self, asked: Speculation) -> int:
        """The most guesses per step for a request; 0 also where nothing is loaded and nothing is asked.

        Raises `InvalidRequest` when the request wants more than there is.
        """
        if asked.enabled is False:
            return 0
        self._check(asked)
        wanted = asked.num_speculative_tokens
        return self.num_spec_tokens if wanted is None else wanted

    def source_for(self, asked: Speculation) -> str | None:
        """The only source whose guesses the request wants; None: whichever is best."""
        return asked.method if asked.method in self.sources else None

    def _check(self, asked: Speculation) -> None:
        if asked.enabled and not self.methods:
            raise InvalidRequest(
                "speculation.enabled=true needs a drafter and none is loaded; start with a "
                "speculative_config, or leave it out.",
                "speculation.enabled",
            )
        if asked.method is not None and asked.method not in self.methods:
            raise InvalidRequest(
                f"speculation.method={asked.method!r} is not loaded; loaded at start: "
                f"{', '.join(self.methods) or 'none'}.",
                "speculation.method",
            )
        wanted = asked.num_speculative_tokens
        if wanted is not None and wanted > self.num_spec_tokens:
            limit = (
                f"at most {self.num_spec_tokens}, as configured"
                if self.methods
                else "0: no drafter is loaded"
            )
            raise InvalidRequest(
                f"speculation.num_speculative_tokens={wanted} must be {limit}.",
                "speculation.num_speculative_tokens",
            )


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
        """`base` cut to what the request, max_tokens (and so the context) and the free pages still allow.

        A step emits one token more than it keeps drafts.
        """
        left = seq.max_tokens - len(seq.output) - 1
        slots = len(seq.table.pages) * self._config.page_size + num_free_slots - len(seq.tokens)
        return max(0, min(base, seq.num_spec_tokens, left, slots))
