"""The names other programs rely on, and the page made of them."""

from __future__ import annotations

import re

from specserve.metrics.series import Kind
from specserve.metrics.table import METRICS, markdown

GAUGES = "num_requests_running num_requests_waiting num_requests_waiting_by_reason kv_cache_usage_perc"
GAUGES += " engine_sleep_state cache_config_info"
COUNTERS = "prefix_cache_queries prefix_cache_hits external_prefix_cache_queries external_prefix_cache_hits"
COUNTERS += " mm_cache_queries mm_cache_hits num_preemptions prompt_tokens prompt_tokens_by_source"
COUNTERS += " prompt_tokens_cached prompt_tokens_cached_by_source generation_tokens request_success"
COUNTERS += " admission_rejections spec_decode_num_drafts spec_decode_num_draft_tokens"
COUNTERS += " spec_decode_num_accepted_tokens spec_decode_num_accepted_tokens_per_pos"
HISTOGRAMS = "time_to_first_token_seconds inter_token_latency_seconds request_time_per_output_token_seconds"
HISTOGRAMS += " e2e_request_latency_seconds request_queue_time_seconds request_prefill_time_seconds"
HISTOGRAMS += " request_decode_time_seconds request_inference_time_seconds request_prompt_tokens"
HISTOGRAMS += " request_generation_tokens request_max_num_generation_tokens request_params_max_tokens"
HISTOGRAMS += " request_prefill_kv_computed_tokens iteration_tokens_total request_params_n"
HISTOGRAMS += " request_num_preemptions"
OURS = "spec_decode_num_discarded_tokens spec_decode_num_trimmed_tokens step_seconds forward_seconds"
OURS += " native_seconds draft_seconds verify_seconds decode_steps decode_tokens"
OURS += " spec_decode_source_drafts spec_decode_source_draft_tokens spec_decode_source_accepted_tokens"


def names(kind: Kind, prefix: str) -> set[str]:
    found = (metric.name for metric in METRICS if metric.kind is kind)
    return {name.removeprefix(prefix) for name in found if name.startswith(prefix)}


def test_the_names_and_kinds_are_vllms() -> None:
    assert names(Kind.GAUGE, "vllm:") == set(GAUGES.split())
    assert names(Kind.COUNTER, "vllm:") == set(COUNTERS.split())
    assert names(Kind.HISTOGRAM, "vllm:") == set(HISTOGRAMS.split())


def test_our_own_names_are_these() -> None:
    assert names(Kind.COUNTER, "specserve:") == set(OURS.split())
    assert all(metric.name.startswith(("vllm:", "specserve:")) for metric in METRICS)


def test_no_name_occurs_twice() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_the_page_has_a_row_for_each_metric() -> None:
    page = markdown()
    assert page.startswith("# Metrics\n")
    assert re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE) == [metric.name for metric in METRICS]
    assert "| `vllm:num_requests_waiting_by_reason` | gauge | `reason`: capacity, deferred |" in page
