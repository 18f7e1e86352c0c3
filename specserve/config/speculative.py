"""The keys of `speculative_config`: how to guess and how to check.

The names are vLLM's, `prompt_lookup_match` is ours. Here a key only has its kind and its bounds; what
follows from the method, and which keys go together, is decided in `specserve.draft.config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any

from specserve.config.kinds import COUNT, INTEGER, ITEMS, LEVEL, MAPPING, NUMBER, SWITCH, TEXT
from specserve.config.options import option, settle

MAX_SPECULATIVE_TOKENS = 128
DEFAULT_TREE_DEPTH = 24


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """All keys, decided. Raises `ConfigError` for a value that cannot be.

    `draft_lengths[r]` is the number of guesses while r requests run; `extra` holds the keys of a drafter
    from outside. Both are no keys themselves. The `drafters` of a chain are such configurations, decided.
    """

    method: str = option(MISSING, TEXT, "the drafter", like="what `model` is for")
    model: str = option(
        MISSING,
        TEXT,
        "draft checkpoint, head, or path of a drafter's class",
        like="none, or what the method implies",
    )
    num_speculative_tokens: int = option(
        MISSING,
        INTEGER,
        "k, the most guesses per step and sequence",
        low=1,
        high=MAX_SPECULATIVE_TOKENS,
        like="the checkpoint's, else required",
    )
    rejection_sample_method: str = option(
        MISSING,
        TEXT,
        "the rule that keeps or refuses guesses",
        choices=("standard", "block", "coupled", "synthetic", "fly"),
        like="standard",
    )
    draft_sample_method: str = option(
        MISSING,
        TEXT,
        "how a drafter with probabilities chooses",
        choices=("greedy", "probabilistic", "coupled"),
        like="greedy",
    )
    num_speculative_tokens_per_batch_size: tuple[tuple[int, int, int], ...] | None = option(
        None, ITEMS, "[first, last, k] by number of running requests: [[1, 4, 4], [5, 256, 0]]"
    )

    prompt_lookup_max: int | None = option(
        None, INTEGER, "ngram: longest ending to look for", low=1, like="5"
    )
    prompt_lookup_min: int | None = option(
        None, INTEGER, "ngram: shortest ending that counts", low=1, like="5"
    )
    prompt_lookup_match: str = option(
        "recent", TEXT, "ngram: which of several equally long matches", choices=("recent", "earliest")
    )
    suffix_decoding_max_tree_depth: int = option(
        DEFAULT_TREE_DEPTH, INTEGER, "suffix: longest match plus guess", low=1
    )
    suffix_decoding_max_cached_requests: int = option(
        10000, INTEGER, "suffix: requests to remember per tenant; 0 remembers none", low=0
    )
    suffix_decoding_max_spec_factor: float = option(
        1.0, NUMBER, "suffix: guesses per token of the match", low=0
    )
    suffix_decoding_min_token_prob: float = option(
        0.1, NUMBER, "suffix: least estimated probability of a guess", low=0, high=1
    )
    suffix_decoding_cache: str = option(
        "per-tenant",
        TEXT,
        "suffix: whose earlier outputs guesses may come from; a tenant is an API key and a cache salt",
        choices=("off", "per-tenant", "shared"),
    )
    suffix_decoding_max_memory: int = option(
        256 * 2**20, COUNT, "suffix: bytes for the remembered outputs of all tenants", low=0
    )
    suffix_decoding_store: str | None = option(
        None, TEXT, "suffix: file in which outputs are remembered between runs"
    )

    drafters: tuple[Any, ...] | None = option(None, ITEMS, "chain: its members, each an object of these keys")

    revision: str | None = option(None, TEXT, "branch, tag or commit of the draft checkpoint")
    code_revision: str | None = option(None, TEXT, "the same for its code")
    quantization: str | None = option(None, TEXT, "weight class of the draft checkpoint", like="none")
    draft_lm_head_quantization: str | None = option(
        None,
        TEXT,
        "a quantised copy of the target's head to draft with; fp8 is taken as int8, nvfp4 as int4",
        choices=("int8", "int4", "fp8", "nvfp4"),
    )
    kv_cache_dtype: str | None = option(
        None,
        TEXT,
        "element type of the drafter's keys and values",
        choices=("auto", "float32", "float16", "bfloat16"),
        like="the target's",
    )
    max_model_len: int | None = option(
        None, COUNT, "context up to which to guess", low=1, like="the shorter of draft and target"
    )
    draft_tensor_parallel_size: int | None = option(
        None, INTEGER, "devices per layer of the draft", low=1, like="the target's"
    )
    draft_load_config: Mapping[str, Any] | None = option(None, MAPPING, "loader options of the draft")
    draft_model_config: Mapping[str, Any] | None = option(
        None, MAPPING, "extract_hidden_states: which layers, under hf_config"
    )
    shared_storage_path: str | None = option(
        None, TEXT, "extract_hidden_states: folder for the files", like="hidden_states among temporary files"
    )
    include_output_tokens: bool = option(
        False, SWITCH, "extract_hidden_states: rows of generated tokens too, but for the last one"
    )
    hidden_states_dtype: str = option(
        "float32",
        TEXT,
        "extract_hidden_states: element type in the files",
        choices=("float32", "bfloat16", "float16"),
    )
    hidden_states_max_bytes: int = option(
        10 * 2**30, COUNT, "extract_hidden_states: bytes of all files together", low=0
    )
    parallel_drafting: bool = option(False, SWITCH, "all k guesses in one pass; draft_model or eagle3")
    use_heterogeneous_vocab: bool = option(False, SWITCH, "draft_model: vocabularies may differ")
    index_share_for_mtp_iteration: bool | None = option(None, SWITCH, "mtp: share indices between iterations")
    dspark_draft_topk: int | None = option(None, INTEGER, "dspark: candidates per position", low=1)

    synthetic_acceptance_rates: tuple[float, ...] | None = option(
        None, ITEMS, "synthetic: probability that the first 1, 2, … k guesses are all accepted"
    )
    synthetic_acceptance_length: float | None = option(
        None, NUMBER, "synthetic: mean tokens per step, 1 to k + 1"
    )
    fly_window_size: int | None = option(None, INTEGER, "fly: window", low=1, like="min(6, k - 1)")
    fly_entropy_threshold: float = option(0.3, LEVEL, "fly: least entropy, in nats", low=0)
    fly_entropy_top_k: int = option(3, INTEGER, "fly: tokens the entropy sums over", low=1)
    enable_adaptive_verification: bool = option(False, SWITCH, "verify only the promising guesses")

    enforce_eager: bool | None = option(None, SWITCH, "accepted and without effect")
    disable_eagle_block_drop: bool = option(False, SWITCH, "accepted and without effect: nothing is dropped")
    disable_padded_drafter_batch: bool = option(False, SWITCH, "accepted and without effect")
    use_local_argmax_reduction: bool = option(False, SWITCH, "accepted and without effect on one device")
    moe_backend: str | None = option(None, TEXT, "accepted and without effect", like="the target's")
    attention_backend: str | None = option(None, TEXT, "accepted and without effect")

    draft_lengths: tuple[int, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settle(self)
