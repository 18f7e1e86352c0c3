"""The limits a scheduler works within, every "auto" already replaced."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """All counts in tokens unless the name says otherwise.

    `max_num_batched_tokens` rows per step; while other sequences decode, prompt chunks together take at
    most `max_prompt_rows_while_decoding` of them, so that a long prompt does not stall running streams.
    """

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int = 512
    max_prompt_rows_while_decoding: int = 128
    long_prefill_token_threshold: int = 0  # 0: off
    policy: str = "fcfs"  # or "priority": lower number first, then arrival
    page_size: int = 32
    num_pages: int = 1024
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    max_waiting: int = 1024  # requests; more are refused with `Overloaded`
