"""What the engine holds and has done: requests, tokens, cache."""

from __future__ import annotations

from collections.abc import Iterable

from specserve.metrics.series import Kind, Metric, Values, one
from specserve.types import StepStats

C, G = Kind.COUNTER, Kind.GAUGE
COMPUTED, CACHED, EXTERNAL = (("local_compute",), ("local_cache_hit",), ("external_kv_transfer",))


def _zeros(*values: str) -> dict[Values, float]:
    return {(value,): 0.0 for value in values}


def _by_source(stats: StepStats) -> Iterable[tuple[Values, float]]:
    computed = stats.num_prompt_tokens - stats.num_prompt_tokens_cached
    return ((COMPUTED, computed), (CACHED, stats.num_prompt_tokens_cached))


STATE = (
    Metric("vllm:num_requests_running", G, "Requests in execution.", one(lambda s: s.num_running)),
    Metric("vllm:num_requests_waiting", G, "Requests waiting for a place.", one(lambda s: s.num_waiting)),
    Metric(
        "vllm:num_requests_waiting_by_reason",
        G,
        "Waiting requests by reason: capacity, or deferred (never, here).",
        lambda s: ((("capacity",), s.num_waiting),),
        labels=("reason",),
        initial=_zeros("capacity", "deferred"),
    ),
    Metric(
        "vllm:kv_cache_usage_perc",
        G,
        "Share of the cache's pages in use, 0 to 1.",
        one(lambda s: s.kv_cache_usage),
    ),
    Metric(
        "vllm:engine_sleep_state",
        G,
        "1 for the state the engine is in: always awake.",
        labels=("sleep_state",),
        initial={("awake",): 1.0} | _zeros("weights_offloaded", "discard_all"),
    ),
    Metric(
        "vllm:cache_config_info",
        G,
        "Always 1; the cache's configuration is in the labels, one per field.",
        initial={(): 1.0},
    ),
)

TOKENS = (
    Metric("vllm:prompt_tokens", C, "Prompt tokens processed.", one(lambda s: s.num_prompt_tokens)),
    Metric(
        "vllm:prompt_tokens_by_source",
        C,
        "Prompt tokens by where their cache rows came from.",
        _by_source,
        labels=("source",),
        initial=_zeros(*COMPUTED, *CACHED, *EXTERNAL),
    ),
    Metric(
        "vllm:prompt_tokens_cached",
        C,
        "Prompt tokens found in the prefix cache.",
        one(lambda s: s.num_prompt_tokens_cached),
    ),
    Metric(
        "vllm:prompt_tokens_cached_by_source",
        C,
        "Cached prompt tokens by where they were found.",
        lambda s: ((CACHED, s.num_prompt_tokens_cached),),
        labels=("source",),
        initial=_zeros(*CACHED, *EXTERNAL),
    ),
    Metric("vllm:generation_tokens", C, "Tokens generated and kept.", one(lambda s: s.num_generation_tokens)),
    Metric("vllm:num_preemptions", C, "Preemptions.", one(lambda s: s.num_preemptions)),
    Metric(
        "vllm:prefix_cache_queries",
        C,
        "Tokens looked up in the prefix cache.",
        one(lambda s: s.prefix_queries),
    ),
    Metric("vllm:prefix_cache_hits", C, "Tokens found in the prefix cache.", one(lambda s: s.prefix_hits)),
    Metric("vllm:external_prefix_cache_queries", C, "Tokens looked up in other engines' caches: 0."),
    Metric("vllm:external_prefix_cache_hits", C, "Tokens found in other engines' caches: 0."),
    Metric("vllm:mm_cache_queries", C, "Multi-modal items looked up in a cache: 0."),
    Metric("vllm:mm_cache_hits", C, "Multi-modal items found in a cache: 0."),
    Metric(
        "vllm:request_success",
        C,
        "Finished sequences by finish reason.",
        lambda s: [((request.finish_reason,), 1.0) for request in s.finished],
        labels=("finished_reason",),
        initial=_zeros("stop", "length", "abort", "error", "repetition"),
    ),
    Metric(
        "vllm:admission_rejections",
        C,
        "Requests refused at admission, by reason. No engine label.",
        labels=("reason",),
        initial=_zeros("queue_full"),
        has_engine=False,
    ),
)
