"""How large the cache is: from bytes per token and the machine's memory to a number of pages.

Order of precedence: `num_gpu_blocks_override` (pages), `kv_cache_memory_bytes`, VLLM_CPU_KVCACHE_SPACE,
`gpu_memory_utilization`. All sizes are in bytes unless the name says tokens or pages.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from specserve.config.engine import EngineConfig
from specserve.errors import ConfigError

UTILIZATION = 0.92
UNASKED_CPU_BYTES = 2 * 2**30  # nobody asked for more: a small model shall not take a large machine


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """A device's memory: all of it, and what was free when the cache's size was asked for.

    `weights` is what still has to be loaded by then, usually 0. `environment` is what
    VLLM_CPU_KVCACHE_SPACE asks for, if it does.
    """

    total: int
    available: int
    weights: int = 0
    is_cpu: bool = True
    environment: int | None = None

    @property
    def free(self) -> int:
        return max(0, self.available - self.weights)


def read_cpu_memory(meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int]:
    """(total, available) of the machine; available counts what the kernel would drop for us."""
    if meminfo.exists():
        rows = (line.split() for line in meminfo.read_text().splitlines())
        kibibytes = {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1}
        return kibibytes["MemTotal"] * 1024, kibibytes.get("MemAvailable", kibibytes["MemFree"]) * 1024
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    if "SC_AVPHYS_PAGES" not in os.sysconf_names:  # macOS does not tell
        return total, total // 2
    return total, page * os.sysconf("SC_AVPHYS_PAGES")


def num_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_budget(config: EngineConfig, facts: MemoryFacts) -> int:
    """Bytes the cache may take. Raises `ConfigError` when more is asked for than there is."""
    if config.kv_cache_memory_bytes is not None:
        return _asked("kv_cache_memory_bytes", config.kv_cache_memory_bytes, facts)
    if facts.is_cpu and facts.environment is not None:
        return _asked("VLLM_CPU_KVCACHE_SPACE", facts.environment, facts)
    share = config.gpu_memory_utilization or UTILIZATION
    if facts.is_cpu:
        return int(share * facts.free)
    return max(0, int(share * facts.total) - (facts.total - facts.available) - facts.weights)


def fitting_tokens(config: EngineConfig, facts: MemoryFacts, bytes_per_token: int) -> int:
    """Tokens the whole budget holds, in full pages; a context can be no longer."""
    if config.num_gpu_blocks_override is not None:
        return config.num_gpu_blocks_override * config.block_size
    page_bytes = bytes_per_token * config.block_size
    return cache_budget(config, facts) // page_bytes * config.block_size


def num_pages_for(
    config: EngineConfig, facts: MemoryFacts, *, bytes_per_token: int, max_model_len: int, max_num_seqs: int
) -> int:
    """Pages of the cache: what the budget holds, but no more than all sequences at full length need.

    `bytes_per_token` is the sum over the target's and the drafter's layers. Raises `ConfigError` when
    not even one sequence of `max_model_len` tokens fits.
    """
    needed = pages_per_sequence(max_model_len, config.block_size)
    fitting = fitting_tokens(config, facts, bytes_per_token) // config.block_size
    if fitting < needed:
        raise _too_small(config, needed, fitting, bytes_per_token * config.block_size, max_model_len)
    if config.num_gpu_blocks_override is not None:
        return fitting
    if _is_unasked(config, facts):
        unasked = UNASKED_CPU_BYTES // (bytes_per_token * config.block_size)
        fitting = min(fitting, max(needed, unasked))
    return min(fitting, needed * max_num_seqs)


def pages_per_sequence(max_model_len: int, page_size: int) -> int:
    return -(-max_model_len // page_size)


def cache_size_line(num_pages: int, page_size: int, max_model_len: int, *, is_cpu: bool = True) -> str:
    """The line a server logs once at start; tokens are those of requests of full length."""
    pages = pages_per_sequence(max_model_len, page_size)
    return (
        f"{'CPU' if is_cpu else 'GPU'} KV cache size: {num_pages * max_model_len // pages:,} tokens, "
        f"Maximum concurrency for {max_model_len:,} tokens per request: {num_pages / pages:.2f}x"
    )


def _is_unasked(config: EngineConfig, facts: MemoryFacts) -> bool:
    asked = (config.kv_cache_memory_bytes, facts.environment, config.gpu_memory_utilization)
    return facts.is_cpu and all(value is None for value in asked)


def _asked(key: str, num_bytes: int, facts: MemoryFacts) -> int:
    if num_bytes > facts.free:
        raise ConfigError(
            f"{key} asks for {_size(num_bytes)}, but only {_size(facts.free)} is free; ask for less.",
            key,
        )
    return num_bytes


def _too_small(
    config: EngineConfig, needed: int, fitting: int, page_bytes: int, max_model_len: int
) -> ConfigError:
    length = fitting * config.block_size
    remedy = "Raise kv_cache_memory_bytes or gpu_memory_utilization"
    if config.num_gpu_blocks_override is not None:
        remedy = f"Raise num_gpu_blocks_override to {needed}"
    if length:
        remedy += f", or lower max_model_len to at most {length} (auto takes the longest that fits)"
    return ConfigError(
        f"One request of max_model_len={max_model_len} tokens needs {_size(needed * page_bytes)} of KV "
        f"cache, but {_size(fitting * page_bytes)} is available, enough for {length} tokens. {remedy}.",
        "max_model_len",
    )


def _size(num_bytes: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if num_bytes >= 2**shift:
            return f"{num_bytes / 2**shift:.2f} {unit}"
    return f"{num_bytes} bytes"
