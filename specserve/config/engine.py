"""What to run and within which limits: every option of the engine, in vLLM's names where it has them.

A None stands for "decided later": `resolve` and `memory` replace it once model and machine are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specserve.config.kinds import BITS, COUNT, INTEGER, LENGTH, MAPPING, NUMBER, SWITCH, TEXT, TEXTS
from specserve.config.options import from_mapping, option, settle
from specserve.errors import ConfigError

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Raises `ConfigError` for a value that cannot be and `NotBuiltYet` for an announced one."""

    model: str = option(
        DEFAULT_MODEL,
        TEXT,
        "folder of safetensors, .gguf file, hub id, or alias (see `specserve models`)",
        positional=True,
    )
    served_model_name: tuple[str, ...] = option(
        (), TEXTS, "names clients may use; the first is in replies", like="the model as typed"
    )
    tokenizer: str | None = option(None, TEXT, "folder or file of the tokenizer", like="the model's own")
    revision: str | None = option(None, TEXT, "branch, tag or commit of a hub id")
    trust_remote_code: bool = option(
        False, SWITCH, "let the tokenizer run code that comes with the checkpoint"
    )
    hf_overrides: Mapping[str, Any] | None = option(
        None, MAPPING, "replaces entries of the model's config", is_built=False
    )
    dtype: str = option(
        "auto",
        TEXT,
        "weights; auto is the file's own, float32 without native kernels",
        choices=("auto", "float32", "float", "bfloat16", "float16", "half"),
    )
    quantization: str | None = option(
        None,
        TEXT,
        "weight class of the native kernels: groups of 32 along the inputs, rounded when loaded",
        choices=("int8", "int4"),
        short="-q",
        like="the file's own",
    )
    activation_bits: int | None = option(
        None,
        BITS,
        "how finely inputs of int4 matrices are rounded, in bits; int8 takes 16",
        like="16 for queries, keys and values, else 8",
    )
    device: str = option("auto", TEXT, "cpu, cuda, cuda:1, … or auto: cuda if there is one, else cpu")
    num_threads: int | None = option(
        None, INTEGER, "threads of the native kernels", low=1, high=256, like="one per core"
    )
    seed: int | None = option(
        None, INTEGER, "seed of requests that bring none", low=0, like="random; 0 for the offline API"
    )

    max_model_len: int | Literal["auto"] | None = option(
        None,
        LENGTH,
        "tokens of prompt and output together; auto or -1: the longest that fits the cache",
        low=1,
        like="what the model was made for",
    )
    max_num_seqs: int | None = option(
        None, COUNT, "sequences that run at the same time", low=1, like="128, offline 256"
    )
    max_num_batched_tokens: int | None = option(
        None,
        COUNT,
        "rows per step, guesses included; less than max_num_seqs lowers that",
        low=1,
        like="on the CPU 512, for prompts 128 while others decode; elsewhere 2048, offline 8192",
    )
    enable_chunked_prefill: bool = option(True, SWITCH, "cut long prompts into chunks")
    long_prefill_token_threshold: int = option(
        0, COUNT, "rows per step for one prompt when others are there too; 0 is off", low=0
    )
    scheduling_policy: str = option(
        "fcfs",
        TEXT,
        "order of waiting requests: by arrival, or by priority first",
        choices=("fcfs", "priority"),
    )
    max_waiting: int = option(1024, COUNT, "sequences that may wait; more are refused with 503", low=1)
    async_scheduling: bool | None = option(
        None, SWITCH, "accepted and without effect: the engine schedules step by step", like="off"
    )

    enable_prefix_caching: bool = option(True, SWITCH, "share pages between prompts that begin alike")
    block_size: int = option(32, COUNT, "tokens per page of the cache", low=1, high=1024)
    kv_cache_dtype: str = option(
        "auto",
        TEXT,
        "element type of keys and values; auto is float32 for float32 models, else float16",
        choices=("auto", "float32", "float16", "bfloat16"),
    )
    kv_cache_memory_bytes: int | None = option(
        None, COUNT, "bytes of the cache, drafter's layers included; wins over the next one", low=1
    )
    gpu_memory_utilization: float | None = option(
        None,
        NUMBER,
        "share of the device's memory to use in all; on a CPU, of the free memory for the cache",
        low=0.01,
        high=1.0,
        like="0.92; on a CPU with nothing asked for, 2 GiB at most, or one request of full length",
    )
    num_gpu_blocks_override: int | None = option(
        None, COUNT, "pages of the cache, whatever the memory", low=1
    )

    max_logprobs: int = option(20, INTEGER, "most logprobs a request may ask for; -1 is no limit", low=-1)
    logprobs_mode: str = option(
        "raw_logprobs",
        TEXT,
        "what logprobs are: before or after the sampling parameters, normalised or logits",
        choices=("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"),
    )
    logits_processors: tuple[str, ...] = option(
        (),
        TEXTS,
        "functions that change each row before the draw: names of installed ones, or module:function",
    )
    generation_config: str = option(
        "auto",
        TEXT,
        "where default sampling parameters come from: auto (the model), vllm (nowhere), or a folder",
    )
    override_generation_config: Mapping[str, Any] | None = option(
        None, MAPPING, 'replaces entries of the generation config: {"temperature": 0.5}'
    )

    speculative_config: Mapping[str, Any] | None = option(
        None,
        MAPPING,
        "how to guess and how to check; see Speculation",
        short="-sc",
        like="no speculation",
    )
    per_request_spec_decode_metrics: str = option(
        "none", TEXT, "acceptance figures in each reply", choices=("none", "summary", "detailed")
    )
    disable_log_stats: bool = option(False, SWITCH, "no statistics in the log and in /metrics")
    stream_interval: int = option(1, INTEGER, "tokens per streamed chunk, at least", low=1)

    enforce_eager: bool = option(False, SWITCH, "op by op through PyTorch, without the native kernels")
    tensor_parallel_size: int = option(1, INTEGER, "devices per layer", low=1, short="-tp", is_built=False)
    pipeline_parallel_size: int = option(1, INTEGER, "stages", low=1, short="-pp", is_built=False)
    data_parallel_size: int = option(1, INTEGER, "copies of the engine", low=1, short="-dp", is_built=False)
    enable_lora: bool = option(False, SWITCH, "adapters", is_built=False)

    def __post_init__(self) -> None:
        settle(self)
        _check_together(self)


def engine_config(options: Mapping[str, Any]) -> EngineConfig:
    """From untyped options. Raises `ConfigError`, also for an unknown name."""
    return from_mapping(EngineConfig, options)


def _check_together(config: EngineConfig) -> None:
    if config.per_request_spec_decode_metrics != "none" and config.speculative_config is None:
        raise ConfigError(
            f"per_request_spec_decode_metrics={config.per_request_spec_decode_metrics!r} needs a "
            "speculative_config; give one or say none.",
            "per_request_spec_decode_metrics",
        )
