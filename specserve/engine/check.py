"""What a configuration comes to, without loading a weight: `specserve check`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from specserve.config.engine import EngineConfig
from specserve.config.environment import read_environment
from specserve.config.generation import default_sampling
from specserve.config.memory import (
    MemoryFacts,
    cache_size_line,
    fitting_tokens,
    num_pages_for,
    read_cpu_memory,
)
from specserve.config.resolve import (
    resolve_dtype,
    resolve_kv_dtype,
    resolve_max_model_len,
    resolve_max_num_seqs,
    resolve_scheduler,
)
from specserve.engine.choose import choose
from specserve.models.specs import ModelSpec

NUM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def check(config: EngineConfig) -> dict[str, Any]:
    """Everything decided as a server on this machine's CPU would decide it. Raises any `UserError`.

    Weights are counted by the model's shape; a drafter's own layers are not counted.
    """
    choice = choose(config, is_offline=False)
    config, files, spec = choice.config, choice.files, choice.spec
    max_num_seqs = resolve_max_num_seqs(config, offline=False)
    speculation = None
    if choice.speculative is not None:
        speculation = asdict(choice.speculative)
        del speculation["draft_lengths"]  # long, and the same again
    facts, per_token = _memory_facts(config, spec), _bytes_per_token(config, spec)
    max_model_len = resolve_max_model_len(config, spec.max_position, fitting_tokens(config, facts, per_token))
    num_pages = num_pages_for(
        config, facts, bytes_per_token=per_token, max_model_len=max_model_len, max_num_seqs=max_num_seqs
    )
    scheduler = resolve_scheduler(config, offline=False, max_model_len=max_model_len, num_pages=num_pages)
    return {
        "engine": asdict(config),
        "model": {"path": str(files.path), "architecture": spec.architecture, "dtype": resolve_dtype(config)},
        "sampling": default_sampling(config, files.generation_config),
        "scheduler": asdict(scheduler),
        "speculation": speculation,
        "kv_cache": cache_size_line(num_pages, config.block_size, max_model_len),
    }


def num_parameters(spec: ModelSpec) -> int:
    """Entries of the matrices; norms and biases are less than a thousandth of that."""
    attention = 2 * (spec.num_heads + spec.num_kv_heads) * spec.head_size
    layer = spec.hidden_size * (attention + 3 * spec.intermediate_size)
    return spec.vocab_size * spec.hidden_size * (1 if spec.is_tied else 2) + len(spec.layers) * layer


def _memory_facts(config: EngineConfig, spec: ModelSpec) -> MemoryFacts:
    total, available = read_cpu_memory()
    weights = num_parameters(spec) * NUM_BYTES[resolve_dtype(config)]
    return MemoryFacts(total, available, weights, environment=read_environment().kv_cache_bytes)


def _bytes_per_token(config: EngineConfig, spec: ModelSpec) -> int:
    element = NUM_BYTES[resolve_kv_dtype(config)]
    return len(spec.layers) * 2 * spec.num_kv_heads * spec.head_size * element
