"""What distinguishes one family from another, as data. Each reads a checkpoint's config (the keys of
Hugging Face's config.json, old and new spellings) into one `ModelSpec`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specserve.errors import ModelError
from specserve.ops.activation import Activation

Config = Mapping[str, Any]
FULL, SLIDING = "full_attention", "sliding_attention"  # as `layer_types` has them


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """`scaling` is the config's mapping; its "rope_type" is default, linear, llama3, or factors (one divisor
    per frequency)."""

    base: float
    rotated: int  # components of a head that turn
    scaling: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """`window`: how many positions a row sees, itself included; None sees all."""

    window: int | None
    rope: RopeSpec


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One decoder-only network. Sizes are in components, `max_position` in tokens."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    max_position: int
    norm_eps: float
    layers: tuple[LayerSpec, ...]
    is_tied: bool
    activation: Activation = "silu"
    attention_scale: float = 0.0  # 0: 1 / sqrt(head_size)
    embedding_scale: float = 1.0
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_mlp_bias: bool = False
    has_head_norms: bool = False
    has_sandwich_norms: bool = False
    is_norm_offset: bool = False  # norms multiply by 1 + w

    @property
    def scale(self) -> float:
        return self.attention_scale or 1.0 / math.sqrt(self.head_size)


def read_spec(config: Config, source: str) -> ModelSpec:
    """Raises `ModelError` naming `source` and what is missing, unknown or out of scope."""
    names = config.get("architectures") or ["(none named)"]
    family = FAMILIES.get(names[0])
    if family is None:
        known = ", ".join(FAMILIES)
        raise ModelError(f"{source}: unknown architecture {names[0]!r}; there are {known}.", "model")
    try:
        _check_numbers(config.get("text_config") or config)
        return family(config)
    except KeyError as error:
        raise ModelError(f"{source}: the config of {names[0]} lacks {error.args[0]!r}.", "model") from None
    except (TypeError, AttributeError) as error:
        reason = f"a value in the config of {names[0]} has the wrong type ({error})."
        raise ModelError(f"{source}: {reason}", "model") from None
    except ValueError as error:
        raise ModelError(f"{source}: {error}", "model") from None


# --- families ---------------------------------------------------------------------------------


def _llama(config: Config) -> ModelSpec:
    rope = _rope(config)
    layers = (LayerSpec(None, rope),) * config["num_hidden_layers"]
    bias = bool(config.get("attention_bias", False))
    return replace(
        _common(config, layers),
        has_qkv_bias=bias,
        has_output_bias=bias,
        has_mlp_bias=bool(config.get("mlp_bias", False)),
    )


def _mistral(config: Config) -> ModelSpec:
    layers = (LayerSpec(config.get("sliding_window"), _rope(config)),) * config["num_hidden_layers"]
    return _common(config, layers)


def _qwen2(config: Config) -> ModelSpec:
    return replace(_common(config, _qwen_layers(config)), has_qkv_bias=True)


def _qwen3(config: Config) -> ModelSpec:
    bias = bool(config.get("attention_bias", False))
    spec = _common(config, _qwen_layers(config))
    return replace(spec, has_head_norms=True, has_qkv_bias=bias, has_output_bias=bias)


def _qwen_layers(config: Config) -> tuple[LayerSpec, ...]:
    """A window only where the config switches it on, and only from layer `max_window_layers` on."""
    rope, count = _rope(config), config["num_hidden_layers"]
    window = config.get("sliding_window") if config.get("use_sliding_window") else None
    first = config.get("max_window_layers", count)
    kinds = _kinds(config, [FULL if i < first else SLIDING for i in range(count)])
    return tuple(LayerSpec(window if kind == SLIDING else None, rope) for kind in kinds)


def _gemma3(config: Config) -> ModelSpec:
    """Every sixth layer (by default) sees all and turns on its own base; the others see a window."""
    count, pattern = config["num_hidden_layers"], config.get("sliding_window_pattern", 6)
    kinds = _kinds(config, [SLIDING if (i + 1) % pattern else FULL for i in range(count)])
    new = config.get("rope_parameters") or {}
    full = _rope({**config, "rope_parameters": new.get(FULL)}, default=1_000_000.0)
    local = _rope(
        {
            **config,
            "rope_scaling": None,
            "rope_theta": config.get("rope_local_base_freq", 10_000.0),
            "rope_parameters": new.get(SLIDING),
        }
    )
    layers = tuple(
        LayerSpec(config["sliding_window"], local) if kind == SLIDING else LayerSpec(None, full)
        for kind in kinds
    )
    if config.get("attn_logit_softcapping") or config.get("final_logit_softcapping"):
        raise ValueError("soft-capped logits are out of scope.")
    return replace(
        _common({"tie_word_embeddings": True, "head_dim": 256, **config}, layers),
        activation="gelu_tanh",
        attention_scale=config.get("query_pre_attn_scalar", 256) ** -0.5,
        embedding_scale=config["hidden_size"] ** 0.5,
        has_head_norms=True,
        has_sandwich_norms=True,
        is_norm_offset=not config.get("norms_are_folded", False),
    )


def _gemma3_multimodal(config: Config) -> ModelSpec:
    """The text part alone; images are out of scope."""
    return _gemma3(
        {**GEMMA3_TEXT_DEFAULTS, **config["text_config"], "architectures": config["architectures"]}
    )


FAMILIES: Mapping[str, Callable[[Config], ModelSpec]] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
    "Gemma3ForCausalLM": _gemma3,
    "Gemma3ForConditionalGeneration": _gemma3_multimodal,
}

# Multimodal checkpoints write only what differs from these.
GEMMA3_TEXT_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
}


COUNTS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "sliding_window",
)


MOST_LAYERS = 10_000  # beyond any checkpoint: a damaged number must not fill the memory with empty layers

# --- parts ------------------------------------------------------------------------------------


def _check_numbers(config: Config) -> None:
    for key in COUNTS:
        value = config.get(key)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{key} is {value!r} in the config, a positive integer was expected.")
    if (config.get("num_hidden_layers") or 0) > MOST_LAYERS:
        raise ValueError(f"num_hidden_layers is {config['num_hidden_layers']}, more than {MOST_LAYERS}.")
    eps = config.get("rms_norm_eps")
    if "rms_norm_eps" in config and not (isinstance(eps, float | int) and 0 <= eps < 1):
        raise ValueError(f"rms_norm_eps is {eps!r} in the config, a number from 0 to 1 was expected.")
    heads, kv_heads = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if heads and kv_heads and heads % kv_heads:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} key heads evenly.")


def _kinds(config: Config, otherwise: list[str]) -> list[str]:
    """Each layer's kind as the config lists them, or as the family has it."""
    kinds: list[str] | None = config.get("layer_types")
    if kinds is None:
        return otherwise
    for kind in kinds:
        if kind not in (FULL, SLIDING):
            raise ValueError(f"layer type {kind!r} is out of scope; there are {FULL}, {SLIDING}.")
    if len(kinds) != len(otherwise):
        raise ValueError(f"layer_types lists {len(kinds)} layers, num_hidden_layers is {len(otherwise)}.")
    return kinds


def _common(config: Config, layers: tuple[LayerSpec, ...]) -> ModelSpec:
    heads = config["num_attention_heads"]
    activation = config.get("hidden_activation") or config.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r} is unknown; there are {', '.join(ACTIVATIONS)}.")
    return ModelSpec(
        architecture=config["architectures"][0],
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_size=config.get("head_dim") or config["hidden_size"] // heads,
        max_position=config["max_position_embeddings"],
        norm_eps=config["rms_norm_eps"],
        layers=layers,
        is_tied=bool(config.get("tie_word_embeddings", False)),
        activation=ACTIVATIONS[activation],
    )


ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
ROPE_TYPES: Mapping[str, tuple[str, ...]] = {  # and the keys each needs
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "factors": ("factors",),
}


def _rope(config: Config, default: float = 10_000.0) -> RopeSpec:
    """Old spelling: rope_theta beside rope_scaling; new: both in rope_parameters."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind not in ROPE_TYPES:
        raise ValueError(f"rope type {kind!r} is out of scope; there are {', '.join(ROPE_TYPES)}.")
    for key in ROPE_TYPES[kind]:
        if key not in given:
            raise ValueError(f"rope type {kind!r} lacks {key!r}.")
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    share = given.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    rotated = int(head * share)
    if kind == "factors" and len(given["factors"]) != rotated // 2:
        raise ValueError(f"{len(given['factors'])} rope factors for {rotated // 2} frequencies.")
    base = given.get("rope_theta") or config.get("rope_theta") or default
    return RopeSpec(float(base), rotated, {**given, "rope_type": kind})
