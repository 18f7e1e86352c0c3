"""The engine's options: defaults, names, and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest

from specserve.config.engine import EngineConfig, engine_config
from specserve.errors import ConfigError, NotBuiltYet

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}


def test_nothing_given_is_a_complete_configuration() -> None:
    config = EngineConfig()
    assert config.model == "smollm2-135m"
    assert (config.block_size, config.max_logprobs, config.stream_interval) == (32, 20, 1)
    assert config.enable_prefix_caching
    assert config.enable_chunked_prefill


@pytest.mark.parametrize(
    ("options", "name", "expected"),
    [
        ({"max_model_len": "4k"}, "max_model_len", 4000),
        ({"max_model_len": "4K"}, "max_model_len", 4096),
        ({"max_model_len": -1}, "max_model_len", "auto"),
        ({"kv_cache_memory_bytes": "1G"}, "kv_cache_memory_bytes", 2**30),
        ({"served_model_name": "a"}, "served_model_name", ("a",)),
        ({"speculative_config": '{"method": "ngram"}'}, "speculative_config", {"method": "ngram"}),
        ({"enforce_eager": True}, "enforce_eager", True),
        ({"async_scheduling": True}, "async_scheduling", True),
        ({"max_logprobs": -1}, "max_logprobs", -1),
    ],
)
def test_options_take_typed_values_and_text(options: dict[str, Any], name: str, expected: Any) -> None:
    assert getattr(engine_config(options), name) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_model_len": 0}, "max_model_len must be"),
        ({"max_num_seqs": 0}, "max_num_seqs must be"),
        ({"gpu_memory_utilization": 1.5}, "at most 1, got 1.5"),
        ({"gpu_memory_utilization": 0}, "at least 0.01"),
        ({"seed": -1}, "seed must be an integer, at least 0"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype must be one of auto, float32, float16, bfloat16"),
        ({"scheduling_policy": "lifo"}, "scheduling_policy must be one of fcfs, priority"),
        ({"speculative_config": "{"}, "speculative_config must be a JSON object, got '{'"),
        ({"max_num_sequences": 1}, "the nearest known name is 'max_num_seqs'"),
    ],
)
def test_a_value_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        engine_config(options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"tensor_parallel_size": 2},
        {"enable_lora": True},
        {"hf_overrides": {"a": 1}},
    ],
)
def test_announced_options_answer_not_built_yet(options: dict[str, Any]) -> None:
    with pytest.raises(NotBuiltYet, match=next(iter(options))):
        engine_config(options)


@pytest.mark.parametrize("level", ["summary", "detailed"])
def test_metrics_of_speculation_need_speculation(level: str) -> None:
    with pytest.raises(ConfigError, match="needs a speculative_config"):
        engine_config({"per_request_spec_decode_metrics": level})
    config = engine_config({"per_request_spec_decode_metrics": level, "speculative_config": NGRAM})
    assert config.per_request_spec_decode_metrics == level
