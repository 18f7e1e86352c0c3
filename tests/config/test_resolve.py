"""What replaces "auto" and None."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from specserve.config.engine import EngineConfig, engine_config
from specserve.config.resolve import (
    resolve_dtype,
    resolve_kv_dtype,
    resolve_max_model_len,
    resolve_max_num_seqs,
    resolve_scheduler,
    resolve_weight_class,
)
from specserve.config.scheduler import SchedulerConfig
from specserve.errors import ConfigError


def scheduler(options: dict[str, Any] | None = None, **changes: Any) -> SchedulerConfig:
    limits = {"offline": False, "max_model_len": 4096, "num_pages": 100, **changes}
    return resolve_scheduler(engine_config(options or {}), **limits)


def test_defaults_of_a_cpu() -> None:
    server, offline = scheduler(), scheduler(offline=True)
    assert (server.max_num_seqs, offline.max_num_seqs) == (128, 256)
    for config in (server, offline):
        assert (config.max_num_batched_tokens, config.max_prompt_rows_while_decoding) == (512, 128)


def test_defaults_elsewhere() -> None:
    server, offline = scheduler(is_cpu=False), scheduler(is_cpu=False, offline=True)
    assert (server.max_num_batched_tokens, server.max_prompt_rows_while_decoding) == (2048, 2048)
    assert (offline.max_num_batched_tokens, offline.max_prompt_rows_while_decoding) == (8192, 8192)


def test_a_given_budget_is_one_budget() -> None:
    config = scheduler({"max_num_batched_tokens": 300})
    assert (config.max_num_batched_tokens, config.max_prompt_rows_while_decoding) == (300, 300)


def test_a_budget_below_the_number_of_sequences_lowers_that() -> None:
    assert scheduler({"max_num_batched_tokens": 100}).max_num_seqs == 100
    assert scheduler({"max_num_batched_tokens": 100, "max_num_seqs": 110}).max_num_seqs == 100
    assert resolve_max_num_seqs(engine_config({"max_num_batched_tokens": 100}), offline=True) == 100


def test_many_sequences_raise_the_default_budget() -> None:
    config = scheduler({"max_num_seqs": 1000})
    assert (config.max_num_seqs, config.max_num_batched_tokens) == (1000, 1000)


def test_without_chunks_a_step_holds_a_whole_prompt() -> None:
    config = scheduler({"enable_chunked_prefill": False})
    assert (config.max_num_batched_tokens, config.max_prompt_rows_while_decoding) == (4096, 4096)
    with pytest.raises(ConfigError, match="max_num_batched_tokens=512 is less than max_model_len=4096"):
        scheduler({"enable_chunked_prefill": False, "max_num_batched_tokens": 512})


def test_a_budget_must_exceed_the_drafters_slots() -> None:
    assert scheduler({"max_num_batched_tokens": 5}, draft_slots=4).max_num_batched_tokens == 5
    with pytest.raises(ConfigError, match="max_num_batched_tokens=4 must be more than the drafter's 4 slots"):
        scheduler({"max_num_batched_tokens": 4}, draft_slots=4)
    whole = {"enable_chunked_prefill": False}
    assert scheduler(whole, draft_slots=4).max_num_batched_tokens == 4100
    with pytest.raises(ConfigError, match="less than max_model_len=4096 and the drafter's 4 slots"):
        scheduler({**whole, "max_num_batched_tokens": 4099}, draft_slots=4)


def test_the_rest_is_taken_over() -> None:
    options = {
        "long_prefill_token_threshold": 64,
        "scheduling_policy": "priority",
        "block_size": 16,
        "enable_prefix_caching": False,
        "max_waiting": 5,
    }
    config = scheduler(options)
    assert config == SchedulerConfig(
        max_model_len=4096,
        max_num_seqs=128,
        long_prefill_token_threshold=64,
        policy="priority",
        page_size=16,
        num_pages=100,
        enable_prefix_caching=False,
        max_waiting=5,
    )


def test_async_scheduling_is_said_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        scheduler({"async_scheduling": True})
    assert "async_scheduling has no effect" in caplog.text


@pytest.mark.parametrize(
    ("asked", "fitting", "expected"),
    [(None, 10, 2048), (1000, 10, 1000), ("auto", 1024, 1024), (-1, 9999, 2048)],
)
def test_length_of_the_context(asked: Any, fitting: int, expected: int) -> None:
    assert resolve_max_model_len(engine_config({"max_model_len": asked}), 2048, fitting) == expected


@pytest.mark.parametrize(
    ("asked", "message"), [(4096, "more than the 2048 tokens"), ("auto", "not even one page")]
)
def test_a_length_that_cannot_be(asked: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_max_model_len(engine_config({"max_model_len": asked}), 2048, 0)


@pytest.mark.parametrize(
    ("dtype", "kv", "expected"),
    [
        ("auto", "auto", ("float32", "float32")),
        ("float", "auto", ("float32", "float32")),
        ("bfloat16", "auto", ("bfloat16", "float16")),
        ("half", "auto", ("float16", "float16")),
        ("bfloat16", "bfloat16", ("bfloat16", "bfloat16")),
        ("auto", "float16", ("float32", "float16")),
    ],
)
def test_element_types(dtype: str, kv: str, expected: tuple[str, str]) -> None:
    config = EngineConfig(dtype=dtype, kv_cache_dtype=kv)
    assert (resolve_dtype(config), resolve_kv_dtype(config)) == expected


def test_native_weights_of_16_bits_or_less_go_with_a_16_bit_cache() -> None:
    for options, expected in (
        ({}, "float16"),
        ({"quantization": "int8", "dtype": "float32"}, "float16"),
        ({"dtype": "bfloat16"}, "float16"),
        ({"dtype": "float32"}, "float32"),
        ({"kv_cache_dtype": "bfloat16"}, "bfloat16"),
    ):
        assert resolve_kv_dtype(engine_config(options), is_native=True) == expected


def test_the_weight_class_is_the_file_s_own_unless_asked_otherwise() -> None:
    for options, expected in (
        ({}, None),
        ({"dtype": "float32"}, "float32"),
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"quantization": "int4"}, "int4"),
        ({"quantization": "int8", "dtype": "bfloat16"}, "int8"),
    ):
        assert resolve_weight_class(engine_config(options)) == expected
