"""A checkpoint so small that its bytes can be counted by hand, and deployments of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import LlamaConfig, MistralConfig, PreTrainedConfig

from specserve.config.engine import engine_config
from specserve.engine.build import Deployment, build
from specserve.ops import Ops
from tests.support.checkpoints import SIZES, random_model
from tests.support.vocabularies import byte_level_backend

VOCAB = 320


def write_tiny(folder: Path, config: PreTrainedConfig | None = None, **options: Any) -> Path:
    """Llama with 3 layers of width 64, 4 heads and 2 kv heads of 16, MLP of 96, unless `config` says
    otherwise; Mistral when `options` have a `sliding_window`."""
    kind = MistralConfig if "sliding_window" in options else LlamaConfig
    sizes = {**SIZES, "vocab_size": VOCAB, "head_dim": 16, **options}
    random_model(config or kind(**sizes)).save_pretrained(folder)
    byte_level_backend(VOCAB).save(str(folder / "tokenizer.json"))
    return folder


def deploy_tiny(
    folder: Path, options: Mapping[str, Any] | None = None, *, ops: Ops | None = None
) -> Deployment:
    """`options` are of `EngineConfig`."""
    given = {"model": str(folder), "seed": 0, "num_threads": 2, "kv_cache_memory_bytes": "1M"}
    return build(engine_config({**given, **(options or {})}), is_offline=True, ops=ops)
