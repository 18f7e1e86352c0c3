"""Series as a scraper reads them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from specserve.metrics.prometheus import MOST_KEPT, PrometheusMetrics, http_requests
from specserve.metrics.table import METRICS
from specserve.types import DraftStats, FinishedStats, StepStats

SPEC = "vllm:spec_decode_num_"
OURS = "specserve:spec_decode_num_"
FINISHED = FinishedStats(
    finish_reason="length",
    arrival=100.0,
    first_scheduled=101.0,
    first_token=103.0,
    last_token=109.0,
    num_prompt_tokens=40,
    num_generation_tokens=4,
    num_cached_tokens=30,
    num_preemptions=2,
    max_tokens=4,
    n=3,
)


def metrics(num_spec_tokens: int | None = 3, **options: str) -> PrometheusMetrics:
    return PrometheusMetrics("model", num_spec_tokens, max_model_len=100, **options)  # type: ignore[arg-type]


class Scrape:
    """Samples by name and own labels; the common labels are checked and dropped."""

    def __init__(self, source: PrometheusMetrics, common: Mapping[str, str] | None = None) -> None:
        self.text = source.render().decode()
        self._common = {"model_name": "model", "engine": "0"} if common is None else common
        self._samples = {
            (sample.name, *sorted(set(sample.labels.items()) - set(self._common.items()))): sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float | None:
        return self._samples.get((name, *sorted(labels.items())))

    def buckets(self, name: str) -> list[float]:
        """Upper limits, infinity excluded, in order."""
        found = [labels[0][1] for key, *labels in self._samples if key == name + "_bucket"]
        return [float(limit) for limit in found if limit != "+Inf"]


def test_counters_end_in_total_and_carry_model_and_engine() -> None:
    source = metrics()
    source.record(StepStats(num_generation_tokens=3))
    assert 'vllm:generation_tokens_total{engine="0",model_name="model"} 3.0' in source.render().decode()


def test_who_reads_the_registry_finds_every_step_counted() -> None:
    source = metrics()
    labels = {"model_name": "model", "engine": "0"}
    for number in range(1, 2 * MOST_KEPT + 4):
        source.record(StepStats(num_rows=1, num_generation_tokens=1, inter_token_latency=[0.5]))
        if number % 50 == 0 or number > 2 * MOST_KEPT:
            names = "vllm:generation_tokens_total", "vllm:inter_token_latency_seconds_count"
            assert [source.registry.get_sample_value(name, labels) for name in names] == [number] * 2
            assert source.registry.get_sample_value("vllm:iteration_tokens_total_count", labels) == number


def test_steps_are_not_kept_for_ever() -> None:
    source = metrics()
    for _ in range(MOST_KEPT):
        source.record(StepStats(num_generation_tokens=1))
    assert not source._kept


def test_the_reference_vector_of_verifications() -> None:
    source = metrics()
    source.record(StepStats(drafts=[DraftStats(3, 3, 0), DraftStats(3, 1, 0)]))
    source.record(StepStats(drafts=[DraftStats(2, 0, 0)]))
    scrape = Scrape(source)
    assert scrape(f"{SPEC}drafts_total") == 3
    assert scrape(f"{SPEC}draft_tokens_total") == 8
    assert scrape(f"{SPEC}accepted_tokens_total") == 4
    assert [scrape(f"{SPEC}accepted_tokens_per_pos_total", position=p) for p in "012"] == [2, 1, 1]


def test_positions_exist_at_zero_from_the_start() -> None:
    scrape = Scrape(metrics(num_spec_tokens=3))
    values = [scrape(f"{SPEC}accepted_tokens_per_pos_total", position=p) for p in "0123"]
    assert values == [0, 0, 0, None]


def test_discarded_and_trimmed_drafts_are_counted_apart() -> None:
    source = metrics()
    source.record(StepStats(drafts=[DraftStats(3, 1, 2)], num_trimmed_draft_tokens=5))
    scrape = Scrape(source)
    assert scrape(f"{SPEC}draft_tokens_total") == 3
    assert scrape(f"{SPEC}accepted_tokens_total") == 1
    assert scrape(f"{OURS}discarded_tokens_total") == 2
    assert scrape(f"{OURS}trimmed_tokens_total") == 5
    assert scrape(f"{SPEC}accepted_tokens_per_pos_total", position="1") == 0


def test_drafts_are_counted_by_source_too() -> None:
    source = metrics()
    source.record(StepStats(drafts=[DraftStats(3, 1, 2, "a"), DraftStats(2, 2, 0, "b"), DraftStats(1, 0, 0)]))
    source.record(StepStats(drafts=[DraftStats(3, 0, 0, "a")]))
    scrape = Scrape(source)
    found = {
        name: [scrape(f"specserve:spec_decode_source_{name}_total", source=s) for s in "abc"]
        for name in ("drafts", "draft_tokens", "accepted_tokens")
    }
    assert found == {"drafts": [2, 1, None], "draft_tokens": [6, 2, None], "accepted_tokens": [1, 2, None]}


def test_without_speculation_there_are_no_series_about_it() -> None:
    source = metrics(num_spec_tokens=None)
    source.record(StepStats(num_generation_tokens=1))
    assert "spec_decode" not in source.render().decode()


def test_a_lossy_rule_is_a_label_of_the_series_about_speculation() -> None:
    source = metrics(lossy_rule="typical")
    source.record(StepStats(num_generation_tokens=1, drafts=[DraftStats(3, 1, 0)]))
    scrape = Scrape(source)
    assert scrape(f"{SPEC}accepted_tokens_total", lossy_rule="typical") == 1
    assert scrape("vllm:generation_tokens_total") == 1


def test_state_is_the_last_steps() -> None:
    source = metrics()
    source.record(StepStats(num_running=3, num_waiting=2, kv_cache_usage=0.5))
    source.record(StepStats(num_running=1, num_waiting=4, kv_cache_usage=0.25))
    scrape = Scrape(source)
    assert scrape("vllm:num_requests_running") == 1
    assert scrape("vllm:num_requests_waiting") == 4
    assert scrape("vllm:num_requests_waiting_by_reason", reason="capacity") == 4
    assert scrape("vllm:num_requests_waiting_by_reason", reason="deferred") == 0
    assert scrape("vllm:kv_cache_usage_perc") == 0.25
    assert scrape("vllm:engine_sleep_state", sleep_state="awake") == 1
    assert scrape("vllm:engine_sleep_state", sleep_state="discard_all") == 0


def test_prompt_tokens_are_split_by_source() -> None:
    source = metrics()
    source.record(
        StepStats(num_prompt_tokens=10, num_prompt_tokens_cached=4, prefix_queries=10, prefix_hits=4)
    )
    scrape = Scrape(source)
    by_source = "vllm:prompt_tokens_by_source_total"
    assert scrape("vllm:prompt_tokens_total") == 10
    assert scrape(by_source, source="local_compute") == 6
    assert scrape(by_source, source="local_cache_hit") == 4
    assert scrape(by_source, source="external_kv_transfer") == 0
    assert scrape("vllm:prompt_tokens_cached_total") == 4
    assert scrape("vllm:prompt_tokens_cached_by_source_total", source="local_cache_hit") == 4
    assert scrape("vllm:prefix_cache_queries_total") == 10
    assert scrape("vllm:prefix_cache_hits_total") == 4


def test_a_finished_sequence_is_observed_once_in_each_distribution() -> None:
    source = metrics()
    source.record(StepStats(finished=[FINISHED]))
    scrape = Scrape(source)
    expected = {
        "request_time_per_output_token_seconds": 2.0,
        "e2e_request_latency_seconds": 9.0,
        "request_queue_time_seconds": 1.0,
        "request_prefill_time_seconds": 2.0,
        "request_decode_time_seconds": 6.0,
        "request_inference_time_seconds": 8.0,
        "request_prompt_tokens": 40.0,
        "request_generation_tokens": 4.0,
        "request_max_num_generation_tokens": 4.0,
        "request_params_max_tokens": 4.0,
        "request_prefill_kv_computed_tokens": 10.0,
        "request_params_n": 3.0,
        "request_num_preemptions": 2.0,
    }
    for name, value in expected.items():
        assert (scrape(f"vllm:{name}_sum"), scrape(f"vllm:{name}_count")) == (value, 1), name
    assert scrape("vllm:request_success_total", finished_reason="length") == 1
    assert scrape("vllm:request_success_total", finished_reason="stop") == 0


def test_a_request_that_got_no_token_has_no_times() -> None:
    source = metrics()
    aborted = FinishedStats("abort", 100.0, 0.0, 0.0, 0.0, 7, 0, 0, 0, None, 1)
    source.record(StepStats(finished=[aborted]))
    scrape = Scrape(source)
    assert scrape("vllm:e2e_request_latency_seconds_count") == 0
    assert scrape("vllm:request_params_max_tokens_count") == 0
    assert scrape("vllm:request_prompt_tokens_count") == 1
    assert scrape("vllm:request_success_total", finished_reason="abort") == 1


def test_one_token_has_no_time_per_token() -> None:
    source = metrics()
    source.record(StepStats(finished=[FinishedStats("stop", 0.0, 1.0, 2.0, 2.0, 7, 1, 0, 0, 1, 1)]))
    assert Scrape(source)("vllm:request_time_per_output_token_seconds_sum") == 0


def test_latencies_are_observed_per_output() -> None:
    source = metrics()
    source.record(StepStats(time_to_first_token=[0.5], inter_token_latency=[0.25, 0.75]))
    scrape = Scrape(source)
    assert scrape("vllm:time_to_first_token_seconds_sum") == 0.5
    assert scrape("vllm:inter_token_latency_seconds_count") == 2
    assert scrape("vllm:inter_token_latency_seconds_bucket", le="0.3") == 1


def test_a_step_with_rows_is_one_iteration() -> None:
    source = metrics()
    source.record(StepStats(num_rows=8, num_prompt_tokens=5, num_generation_tokens=3))
    source.record(StepStats())
    scrape = Scrape(source)
    assert (scrape("vllm:iteration_tokens_total_sum"), scrape("vllm:iteration_tokens_total_count")) == (8, 1)


def test_the_time_of_steps_is_split() -> None:
    source = metrics()
    step = StepStats(
        step_seconds=1.0,
        forward_seconds=0.5,
        verify_seconds=0.25,
        draft_seconds=0.125,
        num_emitting=2,
        num_emitted=5,
    )
    source.record(step)
    source.record(step)
    scrape = Scrape(source)
    names = ("step_seconds", "forward_seconds", "verify_seconds", "draft_seconds")
    assert [scrape(f"specserve:{name}_total") for name in names] == [2.0, 1.0, 0.5, 0.25]
    assert scrape("specserve:decode_tokens_total") == 10
    assert scrape("specserve:decode_steps_total") == 4


def test_buckets_are_vllms() -> None:
    scrape = Scrape(metrics())
    assert scrape.buckets("vllm:time_to_first_token_seconds")[:4] == [0.001, 0.005, 0.01, 0.02]
    assert len(scrape.buckets("vllm:time_to_first_token_seconds")) == 22
    assert scrape.buckets("vllm:inter_token_latency_seconds")[-1] == 80
    assert len(scrape.buckets("vllm:request_time_per_output_token_seconds")) == 19
    assert len(scrape.buckets("vllm:e2e_request_latency_seconds")) == 21
    assert scrape.buckets("vllm:request_prompt_tokens") == [1, 2, 5, 10, 20, 50, 100]
    assert scrape.buckets("vllm:iteration_tokens_total")[:3] == [1, 8, 16]
    assert scrape.buckets("vllm:iteration_tokens_total")[-1] == 16384
    assert scrape.buckets("vllm:request_params_n") == [1, 2, 5, 10, 20]
    assert scrape.buckets("vllm:request_num_preemptions") == [1, 2, 3, 4, 5, 10, 20]


def test_nothing_is_observed_before_the_first_step() -> None:
    scrape = Scrape(metrics())
    for metric in METRICS:
        if metric.kind == "histogram":
            assert scrape(f"{metric.name}_count") == 0


@pytest.mark.parametrize(
    "name",
    ["external_prefix_cache_queries", "external_prefix_cache_hits", "mm_cache_queries", "mm_cache_hits"],
)
def test_what_never_happens_here_is_zero_for_dashboards(name: str) -> None:
    assert Scrape(metrics())(f"vllm:{name}_total") == 0


def test_the_cache_configuration_is_in_labels() -> None:
    source = PrometheusMetrics(
        "model", None, 100, cache_info={"block_size": 16, "enable_prefix_caching": True}
    )
    shown = Scrape(source)("vllm:cache_config_info", block_size="16", enable_prefix_caching="True")
    assert shown == 1


def test_rejections_have_no_engine_label() -> None:
    source = metrics()
    source.count_rejection()
    scrape = Scrape(source, common={"model_name": "model"})
    assert scrape("vllm:admission_rejections_total", reason="queue_full") == 1


def test_two_engines_share_no_state() -> None:
    first, second = metrics(), metrics()
    first.record(StepStats(num_generation_tokens=3))
    assert Scrape(second)("vllm:generation_tokens_total") == 0
    assert first.registry is not second.registry


def test_http_answers_are_counted_under_the_usual_name() -> None:
    registry = CollectorRegistry()
    source = PrometheusMetrics("model", None, 100, registry=registry)
    http_requests(registry).labels("/v1/models", "GET", "2xx").inc()
    line = 'http_requests_total{handler="/v1/models",method="GET",status="2xx"} 1.0'
    assert line in source.render().decode()
