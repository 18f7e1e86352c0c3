"""Replaces what is decided later, every "auto" and None, once model and machine are known."""

from __future__ import annotations

import logging
from typing import Literal

from specserve.config.engine import EngineConfig
from specserve.config.scheduler import SchedulerConfig
from specserve.errors import ConfigError

logger = logging.getLogger(__name__)

# On a CPU a step's time grows with its rows, so a prompt gets few while others wait for their next token.
CPU_ROWS, CPU_PROMPT_ROWS_WHILE_DECODING = 512, 128
SERVER_ROWS, OFFLINE_ROWS = 2048, 8192  # other devices
SERVER_SEQS, OFFLINE_SEQS = 128, 256
DTYPES = {"auto": "float32", "float": "float32", "half": "float16"}


def resolve_dtype(config: EngineConfig) -> str:
    """The arithmetic: "float32", "bfloat16" or "float16"."""
    return DTYPES.get(config.dtype, config.dtype)


def resolve_weight_class(config: EngineConfig) -> Literal["float32", "bfloat16", "int8", "int4"] | None:
    """The native kernels' weight class; None takes each matrix as its file has it."""
    if config.quantization == "int8":
        return "int8"
    if config.quantization == "int4":
        return "int4"
    if config.dtype == "auto":
        return None
    return "bfloat16" if resolve_dtype(config) == "bfloat16" else "float32"


def resolve_kv_dtype(config: EngineConfig, *, is_native: bool = False) -> str:
    """The element type of keys and values: float32 beside float32 weights, else 16 bits."""
    if config.kv_cache_dtype != "auto":
        return config.kv_cache_dtype
    if is_native:
        return "float32" if resolve_weight_class(config) == "float32" else "float16"
    return "float32" if resolve_dtype(config) == "float32" else "float16"


def resolve_max_model_len(config: EngineConfig, model_max_len: int, fitting_tokens: int) -> int:
    """Tokens of prompt and output together.

    `model_max_len` is what the checkpoint was made for, `fitting_tokens` what the cache's budget holds.
    Raises `ConfigError` when more is asked for than the model can do, or nothing fits.
    """
    asked = config.max_model_len
    if asked is None:
        return model_max_len
    if asked == "auto":
        if not fitting_tokens:
            raise ConfigError(
                "max_model_len='auto': not even one page of KV cache fits; raise kv_cache_memory_bytes or "
                "gpu_memory_utilization.",
                "max_model_len",
            )
        return min(model_max_len, fitting_tokens)
    if asked > model_max_len:
        raise ConfigError(
            f"max_model_len={asked} is more than the {model_max_len} tokens the model was made for; ask for "
            "at most that many.",
            "max_model_len",
        )
    return asked


def resolve_max_num_seqs(config: EngineConfig, *, offline: bool) -> int:
    """Sequences at a time; a given row budget below that lowers it."""
    asked = config.max_num_seqs or (OFFLINE_SEQS if offline else SERVER_SEQS)
    return min(asked, config.max_num_batched_tokens or asked)


def resolve_scheduler(
    config: EngineConfig,
    *,
    offline: bool,
    max_model_len: int,
    num_pages: int,
    is_cpu: bool = True,
    draft_slots: int = 0,
) -> SchedulerConfig:
    """The scheduler's limits. `draft_slots` is what the drafter's own batch needs per sequence.

    Raises `ConfigError` when the row budget is too small for the drafter, or for whole prompts.
    """
    max_num_seqs = resolve_max_num_seqs(config, offline=offline)
    whole_prompt = _whole_prompt(config, max_model_len, draft_slots)
    rows, prompt_rows = _rows(config, offline, is_cpu, max(max_num_seqs, whole_prompt))
    if rows <= draft_slots:
        raise ConfigError(
            f"max_num_batched_tokens={rows} must be more than the drafter's {draft_slots} slots; raise it or "
            "lower num_speculative_tokens.",
            "max_num_batched_tokens",
        )
    if config.async_scheduling:
        logger.info("async_scheduling has no effect: the engine schedules step by step.")
    return SchedulerConfig(
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=rows,
        max_prompt_rows_while_decoding=prompt_rows,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
        policy=config.scheduling_policy,
        page_size=config.block_size,
        num_pages=num_pages,
        enable_prefix_caching=config.enable_prefix_caching,
        enable_chunked_prefill=config.enable_chunked_prefill,
        max_waiting=config.max_waiting,
    )


def _whole_prompt(config: EngineConfig, max_model_len: int, draft_slots: int) -> int:
    """Rows a step must be able to hold when prompts are not cut. Raises `ConfigError`."""
    if config.enable_chunked_prefill:
        return 0
    given, least = config.max_num_batched_tokens, max_model_len + draft_slots
    if given is not None and given < least:
        slots = f" and the drafter's {draft_slots} slots" if draft_slots else ""
        raise ConfigError(
            f"max_num_batched_tokens={given} is less than max_model_len={max_model_len}{slots}, and without "
            "enable_chunked_prefill a prompt runs in one step; raise it or allow chunks.",
            "max_num_batched_tokens",
        )
    return least


def _rows(config: EngineConfig, offline: bool, is_cpu: bool, at_least: int) -> tuple[int, int]:
    """Rows per step, and how many of them prompts may take while others decode."""
    if config.max_num_batched_tokens is not None:
        return config.max_num_batched_tokens, config.max_num_batched_tokens
    if not is_cpu:
        rows = max(OFFLINE_ROWS if offline else SERVER_ROWS, at_least)
        return rows, rows
    rows = max(CPU_ROWS, at_least)
    return rows, CPU_PROMPT_ROWS_WHILE_DECODING if config.enable_chunked_prefill else rows
