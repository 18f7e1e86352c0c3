"""GGUF files as checkpoints: metadata as a Hugging Face config, tensors under Hugging Face names.

What the exporter changed is changed back: Llama's query and key rows are stored for interleaved rope and
come back in halves. Gemma's norms are stored as 1 + w and stay so; the config says that they are.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
from numpy.typing import NDArray
from torch import Tensor

from specserve.errors import ModelError
from specserve.models.finite import has_finite_scales
from specserve.ops.native import TAKEN_OVER, Blocks
from specserve.text.gguf_metadata import Header, TensorInfo, read_header

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
}
# Rarely in the metadata: the same in every Gemma 3.
GEMMA_LOCAL_BASE = 10_000.0
GEMMA_PERIOD = 6
GEMMA_27B_LAYERS = 62  # the one size whose attention scale is not that of its head size

PLAIN_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}
SANDWICH_NAMES = {"ffn_norm": "pre_feedforward_layernorm"}
ROPE_FACTORS = "rope_freqs.weight"


class GgufFile:
    """One file's config and tensors. The file is mapped; `read` gives float32 or the stored float type."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._header: Header = read_header(path)
        with path.open("rb") as file:  # a mapping outlives its file
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._tensors = {
            name: info for info in self._header.tensors if (name := self._plain_name(info.name)) is not None
        }

    def names(self) -> Iterator[str]:
        yield from self._tensors

    def place(self, name: str) -> str:
        return str(self.path)

    def read(self, name: str) -> Tensor:
        values = self._values(self._tensors[name])
        if self._is_interleaved(name):
            values = _to_halves(values, self._num_heads(name))
        return torch.from_numpy(values)

    def blocks(self, name: str) -> Blocks | None:
        info = self._tensors[name]
        if info.kind not in TAKEN_OVER or len(info.shape) != 2:
            return None
        stored = self._stored(info)
        if not has_finite_scales(stored, info.kind):
            raise self._error(
                f"tensor {info.name!r} has an infinity or a NaN for a scale; the file is damaged."
            )
        if self._is_interleaved(name):
            stored = _to_halves(stored, self._num_heads(name))
        return Blocks(stored, info.kind, info.shape[1])

    @cached_property
    def config(self) -> dict[str, Any]:
        """The metadata in the keys of config.json. Raises `ModelError` for what is missing or unknown."""
        if self._architecture not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise self._error(f"unknown architecture {self._architecture!r}; there are {known}.")
        heads = self._key("attention.head_count")
        config = {
            "architectures": [ARCHITECTURES[self._architecture]],
            "vocab_size": self._shape("token_embd.weight")[0],
            "hidden_size": self._key("embedding_length"),
            "intermediate_size": self._key("feed_forward_length"),
            "num_hidden_layers": self._key("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._key("attention.head_count_kv", heads),
            "max_position_embeddings": self._key("context_length"),
            "rms_norm_eps": self._key("attention.layer_norm_rms_epsilon"),
            "rope_theta": self._key("rope.freq_base", 10_000.0),
            "rope_scaling": self._rope_scaling(),
            "tie_word_embeddings": "lm_head.weight" not in self._tensors,
        }
        if (head_size := self._key("attention.key_length", None)) is not None:
            config["head_dim"] = head_size
        if self._architecture == "gemma3":
            config |= self._gemma_config(config)
        elif self._architecture == "llama" and self._key("attention.sliding_window", None):
            config["architectures"] = ["MistralForCausalLM"]
            config["sliding_window"] = self._key("attention.sliding_window")
        return config

    @property
    def generation_config(self) -> dict[str, Any]:
        """End tokens: the end of text, and the end of a turn where the file names one."""
        keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
        ids = [self._header.pairs[key] for key in keys if key in self._header.pairs]
        return {"eos_token_id": list(dict.fromkeys(ids))} if ids else {}

    # --- metadata -----------------------------------------------------------------------------

    @property
    def _architecture(self) -> str:
        return str(self._header.pairs.get("general.architecture", ""))

    def _key(self, name: str, *default: Any) -> Any:
        key = f"{self._architecture}.{name}"
        if key in self._header.pairs:
            return self._header.pairs[key]
        if default:
            return default[0]
        raise self._error(f"the metadata lacks {key!r}.")

    def _shape(self, own_name: str) -> tuple[int, ...]:
        for info in self._header.tensors:
            if info.name == own_name:
                return info.shape
        raise self._error(f"tensor {own_name!r} is missing.")

    def _rope_scaling(self) -> Mapping[str, Any] | None:
        for info in self._header.tensors:
            if info.name == ROPE_FACTORS:  # Llama 3's scaling, as one divisor per frequency
                factors = self._values(info)
                if not (np.isfinite(factors) & (factors > 0)).all():
                    raise self._error(f"tensor {ROPE_FACTORS!r} has a factor that is no positive number.")
                return {"rope_type": "factors", "factors": factors.tolist()}
        kind = self._key("rope.scaling.type", "none")
        if kind == "none":
            return None
        return {"rope_type": kind, "factor": self._key("rope.scaling.factor")}

    def _gemma_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        head_size = config.get("head_dim", 256)
        scalar = head_size
        if config["num_hidden_layers"] == GEMMA_27B_LAYERS:
            scalar = config["hidden_size"] // config["num_attention_heads"]
        return {
            "hidden_activation": "gelu_pytorch_tanh",
            "sliding_window": self._key("attention.sliding_window"),
            "sliding_window_pattern": self._key("attention.sliding_window_pattern", GEMMA_PERIOD),
            "rope_local_base_freq": self._key("rope.freq_base_swa", GEMMA_LOCAL_BASE),
            "query_pre_attn_scalar": scalar,
            "norms_are_folded": True,
        }

    # --- tensors ------------------------------------------------------------------------------

    def _plain_name(self, name: str) -> str | None:
        """The Hugging Face name; None for what the config took up; unknown names stay, to be reported."""
        if name == ROPE_FACTORS:
            return None
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
        if match is None:
            return PLAIN_NAMES.get(name, name)
        names = {**LAYER_NAMES, **(SANDWICH_NAMES if self._architecture == "gemma3" else {})}
        part = names.get(match[2])
        return name if part is None else f"model.layers.{match[1]}.{part}.{match[3]}"

    def _num_heads(self, name: str) -> int:
        key = "attention.head_count" if "q_proj" in name else "attention.head_count_kv"
        return int(self._key(key, self._key("attention.head_count")))

    def _is_interleaved(self, name: str) -> bool:
        return self._architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight"))

    def _kind(self, info: TensorInfo) -> GGMLQuantizationType:
        try:
            return GGMLQuantizationType(info.kind)
        except ValueError:
            raise self._error(f"tensor {info.name!r} has the unknown type {info.kind}.") from None

    def _stored(self, info: TensorInfo) -> NDArray[np.uint8]:
        """The tensor's bytes, its last axis counted in bytes: a view of the mapped file."""
        block, size = GGML_QUANT_SIZES[self._kind(info)]
        *heights, width = info.shape
        row = width // block * size
        count = row * int(np.prod(heights, dtype=np.int64))
        if info.offset + count > len(self._data):
            raise self._error(
                f"the file ends inside tensor {info.name!r}: {info.offset + count} bytes expected, "
                f"{len(self._data)} there."
            )
        return np.frombuffer(self._data, np.uint8, count, info.offset).reshape(*heights, row)

    def _values(self, info: TensorInfo) -> NDArray[Any]:
        stored, kind = self._stored(info), self._kind(info)
        try:
            with np.errstate(invalid="ignore"):  # of a damaged scale, which whoever reads the values names
                return np.array(dequantize(stored, kind))
        except NotImplementedError:
            message = f"tensor {info.name!r} has the type {kind.name}, which cannot be read."
            raise self._error(message) from None

    def _error(self, message: str) -> ModelError:
        return ModelError(f"{self.path}: {message}", "model")


def _to_halves(rows: NDArray[Any], num_heads: int) -> NDArray[Any]:
    """Rows of each head from interleaved pairs (0, 1, 2, 3, …) to halves (0, 2, …, 1, 3, …)."""
    pairs = rows.reshape(num_heads, rows.shape[0] // num_heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
