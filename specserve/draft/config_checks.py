"""What method, draft checkpoint and target do not allow. Each check raises `ConfigError`, or nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specserve.config.options import or_nearest
from specserve.config.speculative import SpeculativeConfig
from specserve.draft.config_checkpoint import entry, predicted_tokens
from specserve.draft.config_methods import METHODS, Method
from specserve.draft.config_target import TargetInfo
from specserve.errors import ConfigError

ATTENTION_BACKENDS = """
    CPU_ATTN FLASH_ATTN FLASH_ATTN_DIFFKV FLASHINFER FLASHINFER_MLA FLASHMLA FLASH_ATTN_MLA FLEX_ATTENTION
    ROCM_ATTN ROCM_AITER_FA TORCH_SDPA TREE_ATTN TRITON_ATTN TRITON_MLA XFORMERS
"""


@dataclass(frozen=True, slots=True)
class Case:
    """What the checks look at besides the keys. `checkpoint` is the draft's config.json, {} if unknown."""

    method: Method
    target: TargetInfo
    checkpoint: Mapping[str, Any]
    async_scheduling: bool | None


def check_method_keys(config: SpeculativeConfig, case: Case) -> None:
    name = case.method.name
    if config.index_share_for_mtp_iteration is not None and name != "mtp":
        raise _only("index_share_for_mtp_iteration", "mtp", name)
    if config.dspark_draft_topk is not None and name != "dspark":
        raise _only("dspark_draft_topk", "dspark", name)
    if config.use_heterogeneous_vocab and name != "draft_model":
        raise _only("use_heterogeneous_vocab", "draft_model", name)
    if config.drafters is not None and case.method.model != "members":
        raise _only("drafters", "chain", name)
    if name == "extract_hidden_states":
        _check_extraction(config, case.target)
    if case.method.model == "class" and not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", config.model):
        raise ConfigError(
            f"{name} needs a full module path in model, as package.module.Class, or the name of an installed "
            f"drafter; got {config.model!r}.",
            "model",
        )


def check_argmax_reduction(config: SpeculativeConfig, case: Case) -> None:
    if not config.use_local_argmax_reduction:
        return
    rivals = {
        "use_heterogeneous_vocab": config.use_heterogeneous_vocab,
        "rejection_sample_method='fly'": config.rejection_sample_method == "fly",
        "enable_adaptive_verification": config.enable_adaptive_verification and case.method.name != "dspark",
    }
    for rival, is_set in rivals.items():
        if is_set:
            message = f"use_local_argmax_reduction does not go with {rival}; leave one out."
            raise ConfigError(message, "use_local_argmax_reduction")


def check_num_tokens(config: SpeculativeConfig, case: Case) -> None:
    predicted = predicted_tokens(case.method.name, case.checkpoint)
    k = config.num_speculative_tokens
    if predicted is not None and k > predicted and k % predicted:
        raise ConfigError(
            f"num_speculative_tokens:{k} must be divisible by n_predict={predicted}.",
            "num_speculative_tokens",
        )


def check_vocabulary(config: SpeculativeConfig, case: Case) -> None:
    """A standalone draft guesses ids, which mean something in one vocabulary only."""
    size = entry(case.checkpoint, "vocab_size")
    if case.method.name != "draft_model" or config.use_heterogeneous_vocab or size is None:
        return
    if size != case.target.vocab_size:
        raise ConfigError(
            "Target and draft model should have the same vocabulary size. The target has "
            f"{case.target.vocab_size} ids, {config.model} has {size}: it could guess ids the target "
            "does not know. Take a draft of the target's family, or set use_heterogeneous_vocab.",
            "model",
        )


def check_draft_topk(config: SpeculativeConfig, case: Case) -> None:
    size = entry(case.checkpoint, "draft_vocab_size", "vocab_size")
    if config.dspark_draft_topk is not None and size is not None and config.dspark_draft_topk > size:
        raise ConfigError(
            f"dspark_draft_topk={config.dspark_draft_topk} is more than the draft's {size} ids.",
            "dspark_draft_topk",
        )


def check_store(config: SpeculativeConfig, case: Case) -> None:
    key, store = "suffix_decoding_store", config.suffix_decoding_store
    if store is None or key not in case.method.keys:
        return
    cache, num_requests = config.suffix_decoding_cache, config.suffix_decoding_max_cached_requests
    if cache == "off" or not num_requests:
        raise ConfigError(
            f"{key}={store!r} has nothing to keep: suffix_decoding_cache={cache!r}, "
            f"suffix_decoding_max_cached_requests={num_requests}; leave it out, or remember outputs.",
            key,
        )
    if Path(store).is_dir():
        raise ConfigError(f"{key}={store!r} is a folder; name a file.", key)
    if not Path(store).absolute().parent.is_dir():
        raise ConfigError(f"{key}={store!r} lies in no folder that exists; make it first.", key)


def check_max_model_len(config: SpeculativeConfig, case: Case) -> None:
    limits = {"draft": draft_max_len(case), "target": case.target.max_model_len}
    for whose, limit in limits.items():
        if config.max_model_len is not None and config.max_model_len > limit:
            raise ConfigError(
                f"max_model_len={config.max_model_len} of the draft is more than the {whose}'s {limit}.",
                "max_model_len",
            )


def check_parallelism(config: SpeculativeConfig, case: Case) -> None:
    size, target_size = config.draft_tensor_parallel_size, case.target.tensor_parallel_size
    if size is None or size == target_size:
        return
    if size != 1:
        raise ConfigError(
            f"draft_tensor_parallel_size={size} cannot be other value than 1 or target model "
            f"tensor_parallel_size={target_size}.",
            "draft_tensor_parallel_size",
        )
    if case.method.name == "draft_model":
        raise ConfigError(
            f"draft_tensor_parallel_size of a draft_model must equal the target's {target_size}, got {size}.",
            "draft_tensor_parallel_size",
        )


def check_async(config: SpeculativeConfig, case: Case) -> None:
    if not case.async_scheduling:
        return
    if not case.method.can_run_async:
        able = ", ".join(method.name for method in METHODS if method.can_run_async)
        raise ConfigError(
            f"async_scheduling does not go with method {case.method.name!r}, only with {able}; leave it out.",
            "async_scheduling",
        )
    if config.disable_padded_drafter_batch:
        raise ConfigError(
            "async_scheduling does not go with disable_padded_drafter_batch; leave one out.",
            "async_scheduling",
        )


CHECKS = (
    check_method_keys,
    check_argmax_reduction,
    check_num_tokens,
    check_vocabulary,
    check_draft_topk,
    check_store,
    check_max_model_len,
    check_parallelism,
    check_async,
)


def attention_backend(name: str | None) -> str | None:
    """The name in capitals; "auto" is None. Raises `ConfigError` for an unknown one."""
    if name is None or name.upper() == "AUTO":
        return None
    known = ATTENTION_BACKENDS.split()
    if name.upper() not in known:
        message = (
            f"attention_backend must be one of {', '.join(known)}, got {name!r}{or_nearest(name, known)}"
        )
        raise ConfigError(message, "attention_backend")
    return name.upper()


def draft_max_len(case: Case) -> int:
    """Context of the draft. Heads of the EAGLE family are published with 2048 and take the target's."""
    found: int | None = entry(case.checkpoint, "max_position_embeddings")
    if found is None or case.method.uses_target:
        return case.target.max_model_len
    return found


def _check_extraction(config: SpeculativeConfig, target: TargetInfo) -> None:
    if config.num_speculative_tokens != 1:
        raise ConfigError(
            f"extract_hidden_states needs num_speculative_tokens=1, got {config.num_speculative_tokens}.",
            "num_speculative_tokens",
        )
    key, most = "eagle_aux_hidden_state_layer_ids", target.num_layers
    layers = ((config.draft_model_config or {}).get("hf_config") or {}).get(key)
    if not layers:
        raise ConfigError(f"{key} must be set in draft_model_config.hf_config: the layers to export.", key)
    is_list = isinstance(layers, list | tuple) and all(type(layer) is int for layer in layers)
    if not is_list or not all(0 <= layer <= most for layer in layers) or len(set(layers)) < len(layers):
        raise ConfigError(
            f"{key} must hold different layers from 0 (the embedding) to {most} (before the last norm), got "
            f"{layers!r}.",
            key,
        )


def _only(key: str, method: str, got: str) -> ConfigError:
    return ConfigError(f"{key} goes only with method {method!r}, got {got!r}; leave it out.", key)
