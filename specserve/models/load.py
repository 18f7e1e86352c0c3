"""From tensors by name to a network: every tensor consumed, every weight filled, in the dtype asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from specserve.errors import ModelError
from specserve.models.decoder import Decoder, Layer, Linear, Weights
from specserve.models.find import ModelFiles
from specserve.models.finite import is_finite
from specserve.models.gguf import GgufFile
from specserve.models.rope import inverse_frequencies
from specserve.models.source import SafetensorsFolder, Source
from specserve.models.specs import LayerSpec, ModelSpec, RopeSpec, read_spec
from specserve.models.weights import Maker, TensorMaker
from specserve.ops import Attention, Ops, Weight
from specserve.ops.attention import Rope
from specserve.ops.native import Blocks

HARMLESS = (".rotary_emb.inv_freq", ".masked_bias")  # leftovers that old exporters wrote
OUTSIDE_TEXT = tuple(
    prefix + part for prefix in ("", "model.") for part in ("vision_tower.", "multi_modal_projector.")
)


def load_model(
    files: ModelFiles,
    *,
    ops: Ops,
    dtype: str,
    device: torch.device,
    maker: Maker | None = None,
    progress: bool = False,
) -> Decoder:
    """Read a checkpoint into a `Decoder`. `dtype` of activations: "float32", "bfloat16" or "float16".

    `maker` gives matrices the form that another implementation of the ops wants.

    Raises `ModelError`, one line that names file, tensor and what was expected.
    """
    spec = read_spec(files.config, str(files.path))
    source: Source = SafetensorsFolder(files.path) if files.path.is_dir() else GgufFile(files.path)
    kind = getattr(torch, dtype)
    chosen = maker or TensorMaker(kind, device)
    with _bar(progress, files.name, sum(1 for _ in source.names())) as advance:
        reader = _Reader(source, str(files.path), chosen, kind, device, advance)
        weights = _Assembler(spec, reader).weights()
    reader.check_leftovers()
    return Decoder(spec, weights, ops, dtype=kind, num_bytes=reader.num_bytes)


@contextmanager
def _bar(visible: bool, name: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar on a terminal's standard error, else nothing."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (visible and sys.stderr.isatty())) as bar:
        task = bar.add_task(f"Loading {name}", total=total)
        yield lambda: bar.advance(task)


class _Reader:
    """Takes tensors out of a source, each once, checked against the expected shape."""

    def __init__(
        self,
        source: Source,
        path: str,
        maker: Maker,
        dtype: torch.dtype,
        device: torch.device,
        advance: Callable[[], None],
    ) -> None:
        self._source = source
        self._path = path
        self._maker = maker
        self._dtype = dtype
        self.device = device
        self._advance = advance
        # Multimodal checkpoints keep the text part under a prefix of its own.
        self._names = {_plain(name): name for name in source.names()}
        self._taken: set[str] = set()
        self.num_bytes = 0

    def skip(self, name: str) -> None:
        """Let a tensor be there without being used."""
        self._taken.add(name)

    def weight(
        self,
        names: list[str],
        heights: list[int],
        width: int,
        *,
        is_gated: bool = False,
        is_sensitive: bool = False,
    ) -> Weight:
        """Matrices one under the other, as the ops want them."""
        parts = [self._part(name, (height, width)) for name, height in zip(names, heights, strict=True)]
        weight = self._maker.make(parts, is_gated=is_gated, is_sensitive=is_sensitive)
        self.num_bytes += self._maker.num_bytes(weight)
        return weight

    def bias(self, names: list[str], heights: list[int]) -> Tensor:
        """[sum of heights] in the dtype of activations."""
        parts = [self._read(name, (height,)) for name, height in zip(names, heights, strict=True)]
        return self._keep(torch.cat(parts).to(self._dtype))

    def norm(self, name: str, size: int, offset: bool) -> Tensor:
        """In float32, whatever the dtype; Gemma's weights count from one."""
        weight = self._read(name, (size,)).float()
        return self._keep(weight + 1.0 if offset else weight.clone())

    def check_leftovers(self) -> None:
        left = [
            name
            for name in self._names
            if name not in self._taken and not name.endswith(HARMLESS) and not name.startswith(OUTSIDE_TEXT)
        ]
        if left:
            name = self._names[left[0]]
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            raise ModelError(
                f"{self._source.place(name)}: tensor {name!r}{more} belongs to nothing in this architecture.",
                "model",
            )

    def _part(self, name: str, shape: tuple[int, ...]) -> Tensor | Blocks:
        """A matrix as it lies in the file where the maker can use that, else its numbers."""
        own = self._names.get(name)
        blocks = self._source.blocks(own) if own is not None and self._maker.takes_blocks else None
        if blocks is None or (len(blocks.data), blocks.num_inputs) != shape:
            return self._read(name, shape)  # which also has the words for a wrong shape
        self._taken.add(name)
        self._advance()
        return blocks

    def _read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self._names:
            raise ModelError(f"{self._path}: tensor {name!r} of shape {list(shape)} is missing.", "model")
        own = self._names[name]
        tensor = self._source.read(own)
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{self._source.place(own)}: tensor {own!r} has shape {list(tensor.shape)}, "
                f"expected {list(shape)}.",
                "model",
            )
        if not tensor.is_floating_point():
            raise ModelError(
                f"{self._source.place(own)}: tensor {own!r} holds {tensor.dtype}, expected a float type; "
                "quantised checkpoints are read as GGUF.",
                "model",
            )
        if not is_finite(tensor):
            raise ModelError(
                f"{self._source.place(own)}: tensor {own!r} holds an infinity or a NaN; the file is damaged.",
                "model",
            )
        self._taken.add(name)
        self._advance()
        return tensor

    def _keep(self, tensor: Tensor) -> Tensor:
        tensor = tensor.to(self.device).contiguous()
        self.num_bytes += tensor.numel() * tensor.element_size()
        return tensor


def _plain(name: str) -> str:
    """The text part's names are the same in every packaging."""
    for prefix in ("model.language_model.", "language_model.model."):
        if name.startswith(prefix):
            return "model." + name.removeprefix(prefix)
    return name.removeprefix("language_model.")


class _Assembler:
    """Builds the weights of one spec, name by name as Hugging Face's checkpoints have them."""

    def __init__(self, spec: ModelSpec, reader: _Reader) -> None:
        self._spec = spec
        self._reader = reader
        self._ropes: dict[int, Rope] = {}

    def weights(self) -> Weights:
        spec, reader = self._spec, self._reader
        embedding = self._table("model.embed_tokens.weight")
        layers = tuple(self._layer(i, layer) for i, layer in enumerate(spec.layers))
        norm = reader.norm("model.norm.weight", spec.hidden_size, spec.is_norm_offset)
        if spec.is_tied:
            reader.skip("lm_head.weight")  # some exporters repeat the embedding there
            return Weights(embedding, layers, norm, embedding)
        return Weights(embedding, layers, norm, self._table("lm_head.weight"))

    def _table(self, name: str) -> Weight:
        return self._reader.weight([name], [self._spec.vocab_size], self._spec.hidden_size)

    def _layer(self, number: int, layer: LayerSpec) -> Layer:
        spec = self._spec
        base = f"model.layers.{number}."
        queries, keys = spec.num_heads * spec.head_size, spec.num_kv_heads * spec.head_size
        d, f = spec.hidden_size, spec.intermediate_size
        before_mlp = "pre_feedforward_layernorm" if spec.has_sandwich_norms else "post_attention_layernorm"
        return Layer(
            attention=self._attention(base, layer),
            input_norm=self._norm(base + "input_layernorm.weight", d),
            qkv=self._stacked(
                [f"{base}self_attn.{letter}_proj" for letter in "qkv"],
                [queries, keys, keys],
                d,
                spec.has_qkv_bias,
                is_sensitive=True,
            ),
            output=self._linear(base + "self_attn.o_proj", d, queries, spec.has_output_bias),
            mlp_norm=self._norm(base + before_mlp + ".weight", d),
            gate_up=self._stacked(
                [f"{base}mlp.{part}_proj" for part in ("gate", "up")],
                [f, f],
                d,
                spec.has_mlp_bias,
                is_gated=True,
            ),
            down=self._linear(base + "mlp.down_proj", d, f, spec.has_mlp_bias),
            post_attention_norm=self._sandwich(base + "post_attention_layernorm.weight"),
            post_mlp_norm=self._sandwich(base + "post_feedforward_layernorm.weight"),
        )

    def _attention(self, base: str, layer: LayerSpec) -> Attention:
        spec = self._spec
        names = [f"{base}self_attn.{letter}_norm.weight" for letter in "qk"]
        query_norm, key_norm = (
            self._norm(name, spec.head_size) if spec.has_head_norms else None for name in names
        )
        return Attention(
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_size=spec.head_size,
            scale=spec.scale,
            rope=self._rope(layer.rope),
            window=layer.window,
            query_norm=query_norm,
            key_norm=key_norm,
            norm_eps=spec.norm_eps,
        )

    def _rope(self, rope: RopeSpec) -> Rope:
        """Layers with the same rope share one object, so that a step computes its angles once."""
        if id(rope) not in self._ropes:
            self._ropes[id(rope)] = Rope(inverse_frequencies(rope).to(self._reader.device))
        return self._ropes[id(rope)]

    def _norm(self, name: str, size: int) -> Tensor:
        return self._reader.norm(name, size, self._spec.is_norm_offset)

    def _sandwich(self, name: str) -> Tensor | None:
        return self._norm(name, self._spec.hidden_size) if self._spec.has_sandwich_norms else None

    def _linear(self, name: str, height: int, width: int, has_bias: bool) -> Linear:
        return self._stacked([name], [height], width, has_bias)

    def _stacked(
        self,
        names: list[str],
        heights: list[int],
        width: int,
        has_bias: bool,
        *,
        is_gated: bool = False,
        is_sensitive: bool = False,
    ) -> Linear:
        reader = self._reader
        weight = reader.weight(
            [name + ".weight" for name in names],
            heights,
            width,
            is_gated=is_gated,
            is_sensitive=is_sensitive,
        )
        bias = reader.bias([name + ".bias" for name in names], heights) if has_bias else None
        return Linear(weight, bias)
