"""From bytes to pages: precedence, the worked numbers of Qwen3-8B, errors, the line in the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specserve.config.engine import EngineConfig, engine_config
from specserve.config.memory import (
    UNASKED_CPU_BYTES,
    MemoryFacts,
    cache_budget,
    cache_size_line,
    fitting_tokens,
    num_pages_for,
    read_cpu_memory,
)
from specserve.config.resolve import resolve_max_model_len
from specserve.errors import ConfigError

GIB, KIB = 2**30, 2**10
FACTS = MemoryFacts(total=32 * GIB, available=20 * GIB)
QWEN3_8B = 36 * 2 * 8 * 128 * 2  # layers, keys and values, heads, head size, bytes: 144 KiB
EAGLE3_HEAD = 2 * 8 * 128 * 2
QWEN3_0_6B = 28 * 2 * 8 * 128 * 2


def pages(config: EngineConfig, facts: MemoryFacts = FACTS, **changes: Any) -> int:
    sizes = {"bytes_per_token": 4 * KIB, "max_model_len": 1000, "max_num_seqs": 10**6, **changes}
    return num_pages_for(config, facts, **sizes)


def test_bytes_per_token_of_the_documented_pairs() -> None:
    assert QWEN3_8B == 144 * KIB
    assert QWEN3_8B + EAGLE3_HEAD == 148 * KIB
    assert QWEN3_8B + QWEN3_0_6B == 256 * KIB


@pytest.mark.parametrize(
    ("drafter", "weights", "thousands"), [(0, 0.0, 190), (EAGLE3_HEAD, 2.04e9, 172), (QWEN3_0_6B, 1.5e9, 101)]
)
def test_the_documented_capacities_of_a_48_gb_card(drafter: int, weights: float, thousands: int) -> None:
    room = 190_000 * QWEN3_8B  # what is left beside the target's weights
    facts = MemoryFacts(
        total=48 * GIB, available=room + int(0.08 * 48 * GIB), weights=int(weights), is_cpu=False
    )
    tokens = fitting_tokens(engine_config({"block_size": 16}), facts, QWEN3_8B + drafter)
    assert tokens == pytest.approx(thousands * 1000, rel=0.01)


@pytest.mark.parametrize(
    ("options", "facts", "expected"),
    [
        ({"kv_cache_memory_bytes": "3G", "gpu_memory_utilization": 0.1}, {"environment": 5 * GIB}, 3 * GIB),
        ({"gpu_memory_utilization": 0.1}, {"environment": 5 * GIB}, 5 * GIB),
        ({"gpu_memory_utilization": 0.5}, {}, 10 * GIB),
        ({"gpu_memory_utilization": 0.5}, {"weights": 4 * GIB}, 8 * GIB),
        ({"gpu_memory_utilization": 0.5}, {"is_cpu": False, "environment": 5 * GIB}, 4 * GIB),
        ({"gpu_memory_utilization": 0.1}, {"is_cpu": False}, 0),
    ],
)
def test_precedence_of_the_budget(options: dict[str, Any], facts: dict[str, Any], expected: int) -> None:
    found = cache_budget(engine_config(options), MemoryFacts(32 * GIB, 20 * GIB, **facts))
    assert found == pytest.approx(expected, abs=2)


def test_the_default_share_of_a_gpu_is_92_percent_less_what_is_in_use() -> None:
    facts = MemoryFacts(total=100 * GIB, available=70 * GIB, is_cpu=False)
    assert cache_budget(EngineConfig(), facts) == pytest.approx(62 * GIB, abs=2)


@pytest.mark.parametrize(
    ("options", "environment", "key"),
    [
        ({"kv_cache_memory_bytes": "21G"}, None, "kv_cache_memory_bytes"),
        ({}, 21 * GIB, "VLLM_CPU_KVCACHE_SPACE"),
    ],
)
def test_more_than_is_free_is_refused(options: dict[str, Any], environment: int | None, key: str) -> None:
    facts = MemoryFacts(32 * GIB, 20 * GIB, environment=environment)
    with pytest.raises(
        ConfigError, match=rf"{key} asks for 21.00 GiB, but only 20.00 GiB is free; ask for less"
    ):
        cache_budget(engine_config(options), facts)


def test_explicit_bytes_become_full_pages() -> None:
    config = engine_config({"kv_cache_memory_bytes": 10 * 32 * 4 * KIB + 17, "block_size": 32})
    assert pages(config, max_model_len=64) == 10


def test_no_more_pages_than_all_sequences_can_use() -> None:
    config = engine_config({"kv_cache_memory_bytes": "10G"})
    assert pages(config, max_model_len=100, max_num_seqs=3) == 3 * 4


def test_unasked_a_cpu_cache_stays_small() -> None:
    assert pages(EngineConfig()) == UNASKED_CPU_BYTES // (32 * 4 * KIB)
    asked = pages(engine_config({"gpu_memory_utilization": 0.92}))
    assert asked == int(0.92 * 20 * GIB) // (32 * 4 * KIB)


def test_unasked_one_request_of_full_length_fits_all_the_same() -> None:
    length = 2 * UNASKED_CPU_BYTES // (4 * KIB)
    assert pages(EngineConfig(), max_model_len=length) == length // 32


def test_unasked_a_gpu_gives_its_share() -> None:
    facts = MemoryFacts(total=32 * GIB, available=32 * GIB, is_cpu=False)
    assert pages(EngineConfig(), facts) == int(0.92 * 32 * GIB) // (32 * 4 * KIB)


def test_a_number_of_pages_overrides_all_sizes() -> None:
    config = engine_config({"num_gpu_blocks_override": 50, "kv_cache_memory_bytes": 1})
    assert pages(config, max_num_seqs=1) == 50


def test_the_error_gives_needed_available_and_the_longest_length() -> None:
    config = engine_config({"kv_cache_memory_bytes": 4 * 32 * 4 * KIB})
    with pytest.raises(ConfigError) as caught:
        pages(config, max_model_len=1000)
    assert str(caught.value) == (
        "One request of max_model_len=1000 tokens needs 4.00 MiB of KV cache, but 512.00 KiB is available, "
        "enough for 128 tokens. Raise kv_cache_memory_bytes or gpu_memory_utilization, or lower "
        "max_model_len to at most 128 (auto takes the longest that fits)."
    )
    assert pages(config, max_model_len=128) == 4


def test_the_error_of_too_few_pages_names_the_override() -> None:
    with pytest.raises(ConfigError, match="Raise num_gpu_blocks_override to 32"):
        pages(engine_config({"num_gpu_blocks_override": 3}))


def test_without_any_memory_the_error_offers_no_length() -> None:
    with pytest.raises(ConfigError, match=r"enough for 0 tokens\. Raise [a-z_]+ or [a-z_]+\.$"):
        pages(engine_config({"kv_cache_memory_bytes": 1}))


def test_auto_takes_exactly_the_longest_length_that_fits() -> None:
    config = engine_config({"max_model_len": "auto", "kv_cache_memory_bytes": 4 * 32 * 4 * KIB + 9})
    length = resolve_max_model_len(config, 10**6, fitting_tokens(config, FACTS, 4 * KIB))
    assert length == 128
    assert pages(config, max_model_len=length) == 4
    with pytest.raises(ConfigError, match="lower max_model_len to at most 128"):
        pages(config, max_model_len=length + 1)


def test_the_line_in_the_log() -> None:
    assert cache_size_line(100, 32, 1600) == (
        "CPU KV cache size: 3,200 tokens, Maximum concurrency for 1,600 tokens per request: 2.00x"
    )
    assert cache_size_line(11883, 16, 32768, is_cpu=False) == (
        "GPU KV cache size: 190,128 tokens, Maximum concurrency for 32,768 tokens per request: 5.80x"
    )


def test_a_length_that_is_no_multiple_of_the_page_wastes_the_rest() -> None:
    assert cache_size_line(4, 32, 33).startswith("CPU KV cache size: 66 tokens")


def test_memory_is_read_from_the_kernel(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  600 kB\nHugePages_Total: 0\n")
    assert read_cpu_memory(meminfo) == (1000 * KIB, 600 * KIB)


def test_memory_is_read_without_proc_too(tmp_path: Path) -> None:
    total, available = read_cpu_memory(tmp_path / "absent")
    assert 0 < available <= total
