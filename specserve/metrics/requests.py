"""Distributions: how long requests took, how long they were, how many tokens a step had."""

from __future__ import annotations

from specserve.metrics.series import Kind, Metric, each, limits, of_answered, of_finished
from specserve.types import FinishedStats

H = Kind.HISTOGRAM
_TTFT = limits(".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560")
_PER_TOKEN = limits(".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80")
_REQUEST = limits(".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680")
_ROWS = limits("1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384")


def _time_per_token(request: FinishedStats) -> float:
    gaps = request.num_generation_tokens - 1
    return (request.last_token - request.first_token) / gaps if gaps > 0 else 0.0


LATENCIES = (
    Metric(
        "vllm:time_to_first_token_seconds",
        H,
        "From a request's arrival to its first token.",
        each(lambda s: s.time_to_first_token),
        buckets=_TTFT,
    ),
    Metric(
        "vllm:inter_token_latency_seconds",
        H,
        "Between two outputs of a sequence; an output may hold several tokens.",
        each(lambda s: s.inter_token_latency),
        buckets=_PER_TOKEN,
    ),
    Metric(
        "vllm:request_time_per_output_token_seconds",
        H,
        "From first to last token, per token after the first.",
        of_answered(_time_per_token),
        buckets=_PER_TOKEN,
    ),
    Metric(
        "vllm:e2e_request_latency_seconds",
        H,
        "From arrival to the last token.",
        of_answered(lambda r: r.last_token - r.arrival),
        buckets=_REQUEST,
    ),
    Metric(
        "vllm:request_queue_time_seconds",
        H,
        "From arrival to the first step.",
        of_answered(lambda r: r.first_scheduled - r.arrival),
        buckets=_REQUEST,
    ),
    Metric(
        "vllm:request_prefill_time_seconds",
        H,
        "From the first step to the first token.",
        of_answered(lambda r: r.first_token - r.first_scheduled),
        buckets=_REQUEST,
    ),
    Metric(
        "vllm:request_decode_time_seconds",
        H,
        "From the first token to the last.",
        of_answered(lambda r: r.last_token - r.first_token),
        buckets=_REQUEST,
    ),
    Metric(
        "vllm:request_inference_time_seconds",
        H,
        "From the first step to the last token.",
        of_answered(lambda r: r.last_token - r.first_scheduled),
        buckets=_REQUEST,
    ),
)

LENGTHS = (
    Metric("vllm:request_prompt_tokens", H, "Prompt tokens.", of_finished(lambda r: r.num_prompt_tokens)),
    Metric(
        "vllm:request_generation_tokens",
        H,
        "Tokens generated.",
        of_finished(lambda r: r.num_generation_tokens),
    ),
    Metric(
        "vllm:request_max_num_generation_tokens",
        H,
        "Tokens generated, each of n sequences on its own.",
        of_finished(lambda r: r.num_generation_tokens),
    ),
    Metric(
        "vllm:request_params_max_tokens",
        H,
        "max_tokens, where it was given.",
        each(lambda s: [r.max_tokens for r in s.finished if r.max_tokens is not None]),
    ),
    Metric(
        "vllm:request_prefill_kv_computed_tokens",
        H,
        "Prompt tokens that were not found in the prefix cache.",
        of_finished(lambda r: r.num_prompt_tokens - r.num_cached_tokens),
    ),
    Metric(
        "vllm:request_params_n",
        H,
        "n, once per sequence.",
        of_finished(lambda r: r.n),
        buckets=limits("1 2 5 10 20"),
    ),
    Metric(
        "vllm:request_num_preemptions",
        H,
        "Preemptions of a sequence.",
        of_finished(lambda r: r.num_preemptions),
        buckets=limits("1 2 3 4 5 10 20"),
    ),
    Metric(
        "vllm:iteration_tokens_total",
        H,
        "Prompt and generated tokens of an engine step.",
        each(lambda s: [s.num_prompt_tokens + s.num_generation_tokens] if s.num_rows else []),
        buckets=_ROWS,
        is_per_step=True,
    ),
)
