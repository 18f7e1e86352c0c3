"""What a configuration comes to, without loading a weight: `specserve check`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

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
    resolve_weight_class,
)
from specserve.draft.config_rules import warn_if_lossy
from specserve.engine.choose import choose
from specserve.engine.native import is_native
from specserve.models.specs import ModelSpec

NUM_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "int8": 1.0625, "int4": 0.625}
CPU = torch.device("cpu")


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
    native = is_native(config, spec, CPU)
    facts = _memory_facts(config, spec, native, files.path)
    per_token = _bytes_per_token(config, spec, native)
    max_model_len = resolve_max_model_len(config, spec.max_position, fitting_tokens(config, facts, per_token))
    num_pages = num_pages_for(
        config, facts, bytes_per_token=per_token, max_model_len=max_model_len, max_num_seqs=max_num_seqs
    )
    scheduler = resolve_scheduler(config, offline=False, max_model_len=max_model_len, num_pages=num_pages)
    sampling = default_sampling(config, files.generation_config)
    warn_if_lossy(choice.speculative)
    return {
        "engine": asdict(config),
        "model": {
            "path": str(files.path),
            "architecture": spec.architecture,
            "weights": _weight_class(config, native) or "as in the file",
            "native": native,
        },
        "sampling": sampling,
        "scheduler": asdict(scheduler),
        "speculation": speculation,
        "kv_cache": cache_size_line(num_pages, config.block_size, max_model_len),
    }


def num_parameters(spec: ModelSpec) -> int:
    """Entries of the matrices; norms and biases are less than a thousandth of that."""
    attention = 2 * (spec.num_heads + spec.num_kv_heads) * spec.head_size
    layer = spec.hidden_size * (attention + 3 * spec.intermediate_size)
    return spec.vocab_size * spec.hidden_size * (1 if spec.is_tied else 2) + len(spec.layers) * layer


def _weight_class(config: EngineConfig, native: bool) -> str | None:
    """None: every matrix as its file has it."""
    return resolve_weight_class(config) if native else resolve_dtype(config)


def _memory_facts(config: EngineConfig, spec: ModelSpec, native: bool, path: Path) -> MemoryFacts:
    total, available = read_cpu_memory()
    kind = _weight_class(config, native)
    weights = _size(path) if kind is None else int(num_parameters(spec) * NUM_BYTES[kind])
    return MemoryFacts(total, available, weights, environment=read_environment().kv_cache_bytes)


def _size(path: Path) -> int:
    files = path.glob("*.safetensors") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _bytes_per_token(config: EngineConfig, spec: ModelSpec, native: bool) -> int:
    element = int(NUM_BYTES[resolve_kv_dtype(config, is_native=native)])
    return len(spec.layers) * 2 * spec.num_kv_heads * spec.head_size * element
