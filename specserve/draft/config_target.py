"""What a drafter may know about the target: before either is loaded, and, when it is built, where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specserve.draft.site import Site


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """`hf_config` is the checkpoint's config.json; `max_model_len` is in tokens, already resolved. `site` is
    there once the target is loaded."""

    model: str
    vocab_size: int
    max_model_len: int
    num_layers: int
    hidden_size: int
    hf_config: Mapping[str, Any] = field(default_factory=dict)
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    moe_backend: str | None = None
    tensor_parallel_size: int = 1
    site: Site | None = None
