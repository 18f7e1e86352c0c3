"""Tiny random checkpoints of every family, written by transformers and by the `gguf` package.

The transformers model is the oracle: an implementation by others, over the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from specserve.models import find_model, load_model
from specserve.models.decoder import Decoder
from specserve.ops import reference_ops

VOCAB = 96
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
GEMMA_ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}


def _of(kind: type[PreTrainedConfig], **options: Any) -> PreTrainedConfig:
    return kind(**{**SIZES, **options})


def configs() -> dict[str, PreTrainedConfig]:
    """Every family with what distinguishes it switched on; windows are shorter than the tests' prompts."""
    qwen_window = {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
    return {
        "llama": _of(LlamaConfig),
        "llama-tied": _of(LlamaConfig, tie_word_embeddings=True, num_key_value_heads=4),
        "llama-biased": _of(LlamaConfig, attention_bias=True, mlp_bias=True),
        "llama-llama3": _of(LlamaConfig, rope_parameters=LLAMA3),
        "llama-linear": _of(
            LlamaConfig, rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}
        ),
        "llama-wide-heads": _of(LlamaConfig, head_dim=24, num_key_value_heads=1),
        "mistral": _of(MistralConfig, sliding_window=5, head_dim=None),
        "mistral-all": _of(MistralConfig, sliding_window=None, head_dim=24),
        "qwen2": _of(Qwen2Config),
        "qwen2-window": _of(Qwen2Config, **qwen_window),
        "qwen3": _of(Qwen3Config, head_dim=24, tie_word_embeddings=True),
        "qwen3-biased": _of(Qwen3Config, head_dim=16, attention_bias=True),
        "gemma3": gemma(),
        "gemma3-scaled": gemma(query_pre_attn_scalar=7, rope_parameters=GEMMA_ROPES),
    }


def gemma(**options: Any) -> PreTrainedConfig:
    """Six layers by default: five see a window, the sixth sees all."""
    own = {"num_hidden_layers": 6, "head_dim": 24, "sliding_window": 5, "query_pre_attn_scalar": 24}
    return _of(Gemma3TextConfig, **{**own, "tie_word_embeddings": True, "pad_token_id": 0, **options})


def random_model(config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    """Weights large enough that a wrong norm, bias, window or angle moves the logits."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    randomize(model, seed)
    return model


@torch.no_grad()
def randomize(model: torch.nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if weight.ndim == 1:  # norms stay around their rest, biases around zero
            weight.add_(noise * 0.2)
        else:
            weight.copy_(noise * 1.5 / weight.shape[1] ** 0.5)


@torch.no_grad()
def oracle_logits(model: PreTrainedModel, prompt: list[int]) -> Tensor:
    """[length, V] float32."""
    return model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0].float()


def load(path: Path, dtype: str = "float32", *, progress: bool = False) -> Decoder:
    return load_model(
        find_model(str(path)),
        ops=reference_ops(),
        dtype=dtype,
        device=torch.device("cpu"),
        progress=progress,
    )


def prompts() -> list[list[int]]:
    """Two, of different lengths, longer than any window of the tiny checkpoints."""
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, VOCAB, (length,), generator=generator).tolist() for length in (23, 14)]


# --- GGUF -------------------------------------------------------------------------------------

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma3": gguf.MODEL_ARCH.GEMMA3,
}


def metadata(architecture: str, config: PreTrainedConfig) -> dict[str, Any]:
    """What the exporter writes about a model, without the tokenizer."""
    pairs = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
    }
    if getattr(config, "head_dim", None):
        pairs |= {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}
    if architecture == "gemma3":
        ropes = config.rope_parameters
        pairs |= {
            "attention.sliding_window": config.sliding_window,
            "rope.freq_base": ropes["full_attention"]["rope_theta"],
        }
        if ropes["full_attention"]["rope_type"] == "linear":
            pairs |= {"rope.scaling.type": "linear", "rope.scaling.factor": ropes["full_attention"]["factor"]}
    else:
        pairs["rope.freq_base"] = config.rope_parameters["rope_theta"]
    return {f"{architecture}.{key}": value for key, value in pairs.items()}


class Pack:
    """One weight's bytes in a tensor type, and the numbers those bytes mean."""

    def __init__(self, weight: np.ndarray, kind: str, seed: int = 0) -> None:
        self.kind = gguf.GGMLQuantizationType[kind]
        if kind in RANDOM_BLOCKS:
            self.stored = _random_blocks(weight.shape, self.kind, seed)
        else:
            self.stored = gguf.quantize(weight, self.kind)
        self.values = torch.from_numpy(gguf.dequantize(self.stored, self.kind).copy())

    def rows(self, order: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(self.stored[order])


# Types the package reads but does not write: where a block keeps its float16 scales, in bytes.
RANDOM_BLOCKS: Mapping[str, tuple[int, ...]] = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}


def _random_blocks(shape: tuple[int, ...], kind: gguf.GGMLQuantizationType, seed: int) -> np.ndarray:
    """Any bytes are a valid block, as long as its scales are finite; the scales here keep weights small."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    generator = np.random.default_rng(seed)
    blocks = generator.integers(0, 256, (shape[0], shape[1] // block, size), dtype=np.uint8)
    scale = 0.02 if block == 32 else 0.0005
    for at in RANDOM_BLOCKS[kind.name]:
        scales = generator.uniform(0.5, 1.0, blocks.shape[:2]).astype(np.float16) * np.float16(scale)
        blocks[..., at : at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(shape[0], -1)


def interleaved(num_rows: int, num_heads: int) -> np.ndarray:
    """Where the exporter takes Llama's query and key rows from: halves (0, n/2, 1, n/2 + 1, …) per head."""
    size = num_rows // num_heads
    head = np.arange(size).reshape(2, size // 2).T.reshape(-1)
    return (np.arange(num_heads)[:, None] * size + head).reshape(-1)


def write_model(
    path: Path,
    architecture: str,
    model: PreTrainedModel,
    kind: str = "F32",
    *,
    pairs: Mapping[str, Any] | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    without: tuple[str, ...] = (),
) -> None:
    """Write `model` with its matrices in `kind`, as llama.cpp's exporter would, and give `model` the numbers
    that the file means. `pairs` override the metadata (None leaves a key out), `extra` adds tensors by their
    GGUF names, `without` leaves some out."""
    config = model.config
    names = gguf.get_tensor_name_map(ARCHITECTURES[architecture], config.num_hidden_layers)
    writer = gguf.GGUFWriter(str(path), architecture)
    for key, value in {**metadata(architecture, config), **(pairs or {})}.items():
        _add_pair(writer, key, value)
    for number, (name, weight) in enumerate(model.named_parameters()):
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if own in without:
            continue
        data = weight.detach().numpy()
        if data.ndim == 1:
            writer.add_tensor(own, data + 1.0 if architecture == "gemma3" else data.copy())
            continue
        pack = Pack(data, kind, number)
        weight.data.copy_(pack.values)
        order = np.arange(len(data))
        if architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            order = interleaved(len(data), heads)
        writer.add_tensor(own, pack.rows(order), raw_dtype=pack.kind)
    for name, data in (extra or {}).items():
        writer.add_tensor(name, data)
    finish(writer)


def _add_pair(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif value is not None:
        writer.add_uint32(key, value)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
