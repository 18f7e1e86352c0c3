"""The one decoder: every family is this list of ops on its own spec and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specserve.models.specs import ModelSpec
from specserve.ops import Attention, Ops, Weight
from specserve.types import KVShape, LayerCache, Rows


@dataclass(frozen=True, slots=True)
class Linear:
    """A matrix [out, in] and its bias [out], if it has one."""

    weight: Weight
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """`qkv` and `gate_up` are fused along their outputs. The post norms are those of sandwich families."""

    attention: Attention
    input_norm: Tensor
    qkv: Linear
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear
    post_attention_norm: Tensor | None = None
    post_mlp_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """All of a network's weights; a tied head is the embedding itself."""

    embedding: Weight
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Weight


class Decoder:
    """A `CausalLM` (see base.py) over one spec. Activations are in the weights' dtype, logits float32."""

    def __init__(self, spec: ModelSpec, weights: Weights, ops: Ops, num_bytes: int) -> None:
        self.spec = spec
        self.weights = weights
        self.ops = ops
        self.num_bytes = num_bytes

    @property
    def vocab_size(self) -> int:
        return self.spec.vocab_size

    @property
    def hidden_size(self) -> int:
        return self.spec.hidden_size

    @property
    def max_position(self) -> int:
        return self.spec.max_position

    @property
    def layers(self) -> tuple[KVShape, ...]:
        shape = KVShape(self.spec.num_kv_heads, self.spec.head_size, self.weights.embedding.dtype)
        return (shape,) * len(self.spec.layers)

    def forward(
        self, rows: Rows, cache: Sequence[LayerCache], features: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        ops, w = self.ops, self.weights
        plan = ops.plan(rows)
        x = ops.embed(w.embedding, rows.ids, self.spec.embedding_scale)
        streams = {0: x}  # those asked for and the first: number l enters layer l
        for number, (layer, kv) in enumerate(zip(w.layers, cache, strict=True), start=1):
            h = ops.linear(self._norm(x, layer.input_norm), layer.qkv.weight, layer.qkv.bias)
            h = ops.attention(h, layer.attention, kv, plan)
            h = ops.linear(h, layer.output.weight, layer.output.bias)
            x = ops.add(x, self._post(h, layer.post_attention_norm))
            h = ops.linear(self._norm(x, layer.mlp_norm), layer.gate_up.weight, layer.gate_up.bias)
            h = ops.gated(h, self.spec.activation)
            h = ops.linear(h, layer.down.weight, layer.down.bias)
            x = ops.add(x, self._post(h, layer.post_mlp_norm))
            if number in features:
                streams[number] = x
        wanted = torch.cat([streams[number] for number in features], dim=-1) if features else None
        return self._norm(x, w.norm), wanted

    def logits(self, hidden: Tensor) -> Tensor:
        return self.ops.linear(hidden, self.weights.head, None).float()

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.ops.rms_norm(x, weight, self.spec.norm_eps)

    def _post(self, h: Tensor, weight: Tensor | None) -> Tensor:
        return h if weight is None else self._norm(h, weight)
