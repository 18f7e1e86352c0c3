"""GGUF files against transformers, run on the numbers that the file's blocks mean."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from transformers import LlamaConfig, PreTrainedConfig, PreTrainedModel, Qwen2Config, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specserve.errors import ModelError
from specserve.models import find_model
from specserve.models.gguf import GgufFile
from specserve.models.specs import read_spec
from tests.support.checkpoints import (
    GEMMA_ROPES,
    LLAMA3,
    RANDOM_BLOCKS,
    SIZES,
    configs,
    gemma,
    load,
    oracle_logits,
    prompts,
    random_model,
    write_model,
)
from tests.support.paged import run_paged


def writable(kind: GGMLQuantizationType) -> bool:
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    try:
        quants.quantize(np.zeros((1, block), dtype=np.float32), kind)
    except NotImplementedError:
        return False
    return True


WRITABLE = [kind.name for kind in GGMLQuantizationType if writable(kind)]
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")


def config_for(architecture: str, width: int = 64, **options: Any) -> PreTrainedConfig:
    """Rows of `width`, a multiple of every block in use."""
    sizes = {**SIZES, "hidden_size": width, "intermediate_size": width, "num_hidden_layers": 2, **options}
    if architecture == "gemma3":
        own = {"num_hidden_layers": 6, "head_dim": width // 4, "query_pre_attn_scalar": width // 4}
        return gemma(**{**sizes, **own, "tie_word_embeddings": True})
    kinds = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
    head = {"head_dim": width // 4} if architecture == "qwen3" else {}
    return kinds[architecture](**{**sizes, **head})


def check(oracle: PreTrainedModel, path: Path, chunk: int | None = None) -> None:
    found, _ = run_paged(load(path), prompts(), chunk=chunk)
    for prompt, logits in zip(prompts(), found, strict=True):
        expected = oracle_logits(oracle, prompt)
        assert expected.std() > 0.1
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", [*WRITABLE, *RANDOM_BLOCKS])
def test_every_tensor_type_means_its_numbers(tmp_path: Path, kind: str, architecture: str) -> None:
    block, _ = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    oracle = random_model(config_for(architecture, max(block, 64)))
    path = tmp_path / "model.gguf"
    write_model(path, architecture, oracle, kind)
    check(oracle, path)


def test_the_usual_types_are_among_them() -> None:
    usual = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"}
    assert usual <= {*WRITABLE, *RANDOM_BLOCKS}


FAMILIES = [
    ("llama", "llama-tied"),
    ("llama", "llama-wide-heads"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("gemma3", "gemma3"),
]


@pytest.mark.parametrize(("architecture", "family"), FAMILIES)
@pytest.mark.parametrize("chunk", [None, 3])
def test_metadata_carries_what_a_family_needs(
    tmp_path: Path, architecture: str, family: str, chunk: int | None
) -> None:
    oracle = random_model(configs()[family])
    write_model(tmp_path / "model.gguf", architecture, oracle)
    check(oracle, tmp_path / "model.gguf", chunk)


@pytest.mark.parametrize(("architecture", "family"), FAMILIES)
def test_a_file_and_a_folder_give_the_same_spec(tmp_path: Path, architecture: str, family: str) -> None:
    oracle = random_model(configs()[family])
    oracle.save_pretrained(tmp_path)
    write_model(tmp_path / "model.gguf", architecture, oracle)
    specs = [read_spec(find_model(str(path)).config, "here") for path in (tmp_path, tmp_path / "model.gguf")]
    for field in ("num_kv_heads", "head_size", "is_tied", "has_head_norms", "embedding_scale", "scale"):
        assert getattr(specs[0], field) == getattr(specs[1], field)
    assert [layer.window for layer in specs[0].layers] == [layer.window for layer in specs[1].layers]
    assert [layer.rope.base for layer in specs[0].layers] == [layer.rope.base for layer in specs[1].layers]


# --- rope -------------------------------------------------------------------------------------


def test_llama3_factors_are_taken_from_their_tensor(tmp_path: Path) -> None:
    config = configs()["llama-llama3"]
    size = config.hidden_size // config.num_attention_heads
    plain = 1.0 / LLAMA3["rope_theta"] ** (torch.arange(0, size, 2) / size)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    factors = (plain / scaled).numpy().astype(np.float32)
    assert factors.max() == pytest.approx(LLAMA3["factor"])
    oracle = random_model(config)
    write_model(tmp_path / "model.gguf", "llama", oracle, extra={"rope_freqs.weight": factors})
    check(oracle, tmp_path / "model.gguf", 7)


def test_linear_scaling_of_gemma_is_for_layers_that_see_all(tmp_path: Path) -> None:
    oracle = random_model(gemma(rope_parameters=GEMMA_ROPES))
    write_model(tmp_path / "model.gguf", "gemma3", oracle)
    check(oracle, tmp_path / "model.gguf")


def test_window_period_and_local_base_of_gemma_may_be_named(tmp_path: Path) -> None:
    ropes = {**GEMMA_ROPES, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}
    kinds = ["sliding_attention", "full_attention"] * 2
    oracle = random_model(gemma(num_hidden_layers=4, layer_types=kinds, rope_parameters=ropes))
    pairs = {"gemma3.attention.sliding_window_pattern": 2, "gemma3.rope.freq_base_swa": 500.0}
    write_model(tmp_path / "model.gguf", "gemma3", oracle, pairs=pairs)
    check(oracle, tmp_path / "model.gguf")


def test_a_llama_with_a_window_is_a_mistral(tmp_path: Path) -> None:
    oracle = random_model(configs()["mistral"])
    write_model(tmp_path / "model.gguf", "llama", oracle, pairs={"llama.attention.sliding_window": 5})
    check(oracle, tmp_path / "model.gguf", 3)


# --- errors -----------------------------------------------------------------------------------


def small(architecture: str = "llama") -> PreTrainedModel:
    return random_model(config_for(architecture))


def message(path: Path) -> str:
    """Of the one error that loading gives, which is one line and names the file."""
    with pytest.raises(ModelError) as caught:
        load(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({"llama.block_count": None}, "the metadata lacks 'llama.block_count'"),
        ({"llama.embedding_length": None}, "the metadata lacks 'llama.embedding_length'"),
        ({"llama.attention.head_count": None}, "the metadata lacks 'llama.attention.head_count'"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0},
            "rope type 'yarn' is out of scope; there are default, linear, llama3, factors",
        ),
        ({"llama.rope.scaling.type": "linear"}, "the metadata lacks 'llama.rope.scaling.factor'"),
        ({"llama.block_count": 3}, "tensor 'model.layers.2.input_layernorm.weight' of shape [64] is missing"),
        ({"llama.block_count": 1}, "belongs to nothing in this architecture"),
        ({"llama.feed_forward_length": 32}, "has shape [64, 64], expected [32, 64]"),
        (
            {"llama.attention.head_count": "four"},
            "num_attention_heads is 'four' in the config, a positive integer was expected",
        ),
        ({"llama.attention.head_count_kv": 3}, "4 query heads cannot share 3 key heads evenly"),
    ],
)
def test_metadata_that_cannot_be_is_named(tmp_path: Path, pairs: Mapping[str, Any], expected: str) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "llama", small(), pairs=pairs)
    assert expected in message(path)


def test_an_unknown_architecture_lists_the_known_ones(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(str(path), "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "unknown architecture 'mamba'; there are llama, qwen2, qwen3, gemma3." in message(path)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("token_embd.weight", "tensor 'token_embd.weight' is missing"),
        ("blk.1.ffn_up.weight", "tensor 'model.layers.1.mlp.up_proj.weight' of shape [64, 64] is missing"),
        ("output_norm.weight", "tensor 'model.norm.weight' of shape [64] is missing"),
    ],
)
def test_a_missing_tensor_is_named(tmp_path: Path, own: str, expected: str) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "llama", small(), without=(own,))
    assert expected in message(path)


def test_a_tensor_too_many_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    extra = {"blk.0.ffn_gate_inp.weight": np.zeros((4, 64), dtype=np.float32)}
    write_model(path, "llama", small(), extra=extra)
    assert "tensor 'blk.0.ffn_gate_inp.weight' belongs to nothing" in message(path)


def test_factors_of_the_wrong_number_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    extra = {"rope_freqs.weight": np.ones(5, dtype=np.float32)}
    write_model(path, "llama", small(), extra=extra)
    assert "5 rope factors for 8 frequencies" in message(path)


def test_a_norm_of_another_size_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    extra = {"output_norm.weight": np.ones(5, dtype=np.float32)}
    write_model(path, "llama", small(), extra=extra, without=("output_norm.weight",))
    assert "tensor 'model.norm.weight' has shape [5], expected [64]" in message(path)


def damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def test_a_file_that_ends_early_says_in_which_tensor(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "llama", small(), "Q8_0")
    damage(path, lambda data: data[:-2000])
    size = path.stat().st_size
    assert "the file ends inside tensor '" in message(path)
    assert f"{size} there" in message(path)


def spoil_scale(path: Path, own: str) -> None:
    """The first scale of a tensor of 32-blocks becomes infinite."""
    [place] = [t.data_offset for t in gguf.GGUFReader(path).tensors if t.name == own]
    damage(path, lambda data: data[:place] + b"\x00\x7c" + data[place + 2 :])


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_a_scale_that_is_no_number_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "llama", small(), kind)
    spoil_scale(path, "blk.1.ffn_up.weight")
    name = "model.layers.1.mlp.up_proj.weight"
    assert f"tensor {name!r} holds an infinity or a NaN; the file is damaged." in message(path)
    with pytest.raises(
        ModelError, match=r"tensor 'blk.1.ffn_up.weight' has an infinity or a NaN for a scale"
    ):
        GgufFile(path).blocks(name)
    assert GgufFile(path).blocks("model.layers.0.mlp.up_proj.weight") is not None


@pytest.mark.parametrize("factor", [0.0, -1.0, np.nan, np.inf])
def test_a_rope_factor_that_is_no_positive_number_is_refused(tmp_path: Path, factor: float) -> None:
    path = tmp_path / "model.gguf"
    factors = np.array([1.0] * 7 + [factor], dtype=np.float32)
    write_model(path, "llama", small(), extra={"rope_freqs.weight": factors})
    assert "tensor 'rope_freqs.weight' has a factor that is no positive number" in message(path)


@pytest.mark.parametrize("kept", [0, 3, 20, 100, 400])
def test_a_file_that_ends_in_its_header_says_so(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "llama", small())
    damage(path, lambda data: data[:kept])
    text = message(path)
    assert "truncated or damaged" in text or "not a readable GGUF file" in text


def test_any_cut_is_an_error_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "llama", small())
    data = path.read_bytes()
    for kept in range(0, len(data) - 256, 3001):  # behind the last tensor there may be padding
        path.write_bytes(data[:kept])
        message(path)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (99, "has the unknown type 99"),
        (int(GGMLQuantizationType.I32), "has the type I32, which cannot be read"),
    ],
)
def test_a_tensor_type_that_cannot_be_read_is_named(tmp_path: Path, kind: int, expected: str) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "llama", small())
    name = b"blk.0.attn_q.weight"
    at = name + struct.pack("<IQQ", 2, 64, 64)
    damage(path, lambda data: data.replace(at + struct.pack("<I", 0), at + struct.pack("<I", kind)))
    text = message(path)
    assert "tensor 'blk.0.attn_q.weight'" in text
    assert expected in text


def test_bytes_that_are_no_gguf_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(1000))
    assert "it begins with b'PK" in message(path)


# --- the rest ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "ids"),
    [
        ({}, None),
        ({"tokenizer.ggml.eos_token_id": 2}, [2]),
        ({"tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.eot_token_id": 7}, [2, 7]),
        ({"tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.eot_token_id": 2}, [2]),
    ],
)
def test_end_tokens_are_those_of_text_and_turn(
    tmp_path: Path, pairs: Mapping[str, Any], ids: list[int] | None
) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "llama", small(), pairs=pairs)
    assert find_model(str(path)).generation_config.get("eos_token_id") == ids


def test_nothing_stays_open(tmp_path: Path) -> None:
    """Warnings are errors here, and a file that was left open warns when it is collected."""
    path = tmp_path / "model.gguf"
    write_model(path, "llama", small())
    model = load(path)
    gc.collect()
    assert not [link for link in Path("/proc/self/fd").iterdir() if link.resolve() == path.resolve()]
    assert model.num_bytes > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_blocks_are_rounded_once_to_the_dtype(tmp_path: Path, dtype: str) -> None:
    oracle = small()
    write_model(tmp_path / "model.gguf", "llama", oracle, "Q8_0")
    embedding = load(tmp_path / "model.gguf", dtype).weights.embedding
    expected = oracle.get_input_embeddings().weight.detach()
    torch.testing.assert_close(embedding, expected.to(getattr(torch, dtype)), atol=0, rtol=0)
