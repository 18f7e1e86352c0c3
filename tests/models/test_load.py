"""What can be wrong with a checkpoint is said in one line that names file, tensor and what was expected."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specserve.errors import ModelError
from specserve.models.specs import FAMILIES
from tests.support.checkpoints import configs, load, prompts, random_model
from tests.support.paged import run_paged

Tensors = dict[str, Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random_model(configs()["llama"]).save_pretrained(tmp_path)
    return tmp_path


def change_config(folder: Path, **changes: Any) -> None:
    """None takes a key away."""
    file = folder / "config.json"
    config = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def change_tensors(folder: Path, change: Callable[[Tensors], object]) -> Path:
    file = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    change(tensors)
    save_file(tensors, file)
    return file


def message(folder: Path) -> str:
    """Of the one error, which is one line and names the folder or a file in it."""
    with pytest.raises(ModelError) as caught:
        load(folder)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(folder))
    return text


# --- configs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["MambaForCausalLM"], [], None])
def test_an_unknown_architecture_lists_the_known_ones(folder: Path, names: list[str] | None) -> None:
    change_config(folder, architectures=names)
    name = (names or ["(none named)"])[0]
    assert message(folder) == f"{folder}: unknown architecture {name!r}; there are {', '.join(FAMILIES)}."


@pytest.mark.parametrize(
    "key",
    [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "rms_norm_eps",
    ],
)
def test_a_missing_key_is_named(folder: Path, key: str) -> None:
    change_config(folder, **{key: None})
    assert message(folder) == f"{folder}: the config of LlamaForCausalLM lacks {key!r}."


@pytest.mark.parametrize("value", [0, -1, "3", 2.5, [3]])
@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "num_hidden_layers", "head_dim"])
def test_a_size_that_is_no_count_is_named(folder: Path, key: str, value: object) -> None:
    change_config(folder, **{key: value})
    expected = f"{folder}: {key} is {value!r} in the config, a positive integer was expected."
    assert message(folder) == expected


@pytest.mark.parametrize("value", ["x", -1, 2, True, [1e-5]])
def test_a_norm_epsilon_that_is_none_is_named(folder: Path, value: object) -> None:
    change_config(folder, rms_norm_eps=value)
    expected = f"{folder}: rms_norm_eps is {value!r} in the config, a number from 0 to 1 was expected."
    assert message(folder) == expected


def test_more_layers_than_any_model_has_are_refused_before_they_are_made(folder: Path) -> None:
    change_config(folder, num_hidden_layers=10**9)
    assert message(folder) == f"{folder}: num_hidden_layers is 1000000000, more than 10000."


def test_heads_that_cannot_be_shared_are_named(folder: Path) -> None:
    change_config(folder, num_key_value_heads=3)
    assert message(folder) == f"{folder}: 4 query heads cannot share 3 key heads evenly."


def test_a_value_of_another_type_is_an_error_too(folder: Path) -> None:
    change_config(folder, rope_parameters={"rope_type": "default", "rope_theta": [1]})
    assert "a value in the config of LlamaForCausalLM has the wrong type (" in message(folder)


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("kind", ["yarn", "longrope", "dynamic"])
def test_an_unsupported_rope_lists_the_others(folder: Path, spelling: str, kind: str) -> None:
    change_config(folder, rope_parameters=None)
    change_config(folder, **{spelling: {"rope_type": kind, "factor": 4.0}})
    expected = f"rope type {kind!r} is out of scope; there are default, linear, llama3, factors."
    assert message(folder) == f"{folder}: {expected}"


@pytest.mark.parametrize(
    ("scaling", "key"),
    [
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}, "high_freq_factor"),
    ],
)
def test_a_rope_that_lacks_a_key_names_it(folder: Path, scaling: dict[str, Any], key: str) -> None:
    change_config(folder, rope_parameters=scaling)
    assert message(folder) == f"{folder}: rope type {scaling['rope_type']!r} lacks {key!r}."


def test_an_unknown_activation_lists_the_known_ones(folder: Path) -> None:
    change_config(folder, hidden_act="relu")
    assert message(folder).startswith(f"{folder}: activation 'relu' is unknown; there are silu, ")


@pytest.mark.parametrize("key", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_soft_caps_are_refused(tmp_path: Path, key: str) -> None:
    random_model(configs()["gemma3"]).save_pretrained(tmp_path)
    change_config(tmp_path, **{key: 30.0})
    assert message(tmp_path) == f"{tmp_path}: soft-capped logits are out of scope."


# --- tensors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.embed_tokens.weight", [96, 64]),
        ("model.layers.1.self_attn.k_proj.weight", [32, 64]),
        ("model.layers.2.mlp.down_proj.weight", [64, 96]),
        ("model.layers.0.post_attention_layernorm.weight", [64]),
        ("model.norm.weight", [64]),
        ("lm_head.weight", [96, 64]),
    ],
)
def test_a_missing_tensor_is_named(folder: Path, name: str, shape: list[int]) -> None:
    change_tensors(folder, lambda tensors: tensors.pop(name))
    assert message(folder) == f"{folder}: tensor {name!r} of shape {shape} is missing."


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("model.embed_tokens.weight", (95, 64), [96, 64]),
        ("model.layers.1.self_attn.v_proj.weight", (64, 32), [32, 64]),
        ("model.layers.0.input_layernorm.weight", (1, 64), [64]),
        ("lm_head.weight", (96, 63), [96, 64]),
    ],
)
def test_a_wrong_shape_is_named(folder: Path, name: str, shape: tuple[int, ...], expected: list[int]) -> None:
    file = change_tensors(folder, lambda tensors: tensors.update({name: torch.zeros(shape)}))
    assert message(folder) == f"{file}: tensor {name!r} has shape {list(shape)}, expected {expected}."


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_integers_are_no_weights(folder: Path, dtype: torch.dtype) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    file = change_tensors(folder, lambda tensors: tensors.update({name: tensors[name].to(dtype)}))
    assert message(folder).startswith(f"{file}: tensor {name!r} holds {dtype}, expected a float type")


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.layers.2.mlp.up_proj.weight",
        "model.layers.1.input_layernorm.weight",
    ],
)
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_value_that_is_no_number_is_named(
    folder: Path, name: str, value: float, dtype: torch.dtype
) -> None:
    def spoil(tensors: Tensors) -> None:
        tensors[name] = tensors[name].to(dtype)
        tensors[name].view(-1)[5] = value

    file = change_tensors(folder, spoil)
    assert message(folder) == f"{file}: tensor {name!r} holds an infinity or a NaN; the file is damaged."


def test_one_tensor_too_many_is_named(folder: Path) -> None:
    file = change_tensors(folder, lambda tensors: tensors.update({"model.extra.weight": torch.ones(1)}))
    expected = "tensor 'model.extra.weight' belongs to nothing in this architecture."
    assert message(folder) == f"{file}: {expected}"


def test_several_tensors_too_many_are_counted(folder: Path) -> None:
    change_config(folder, num_hidden_layers=2)
    text = message(folder)
    assert "tensor 'model.layers.2." in text
    assert " and 8 more belongs to nothing in this architecture." in text


def test_a_bias_that_the_config_denies_is_not_dropped(folder: Path) -> None:
    name = "model.layers.0.self_attn.q_proj.bias"
    change_tensors(folder, lambda tensors: tensors.update({name: torch.ones(64)}))
    assert f"tensor {name!r} belongs to nothing" in message(folder)


def test_leftovers_of_old_exporters_are_harmless(folder: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_tensors(folder, lambda tensors: tensors.update({name: torch.ones(8)}))
    assert load(folder).num_bytes > 0


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    random_model(configs()["llama"]).save_pretrained(tmp_path, max_shard_size="40KB")
    file = sorted(tmp_path.glob("*.safetensors"))[1]
    file.unlink()
    assert message(tmp_path).startswith(f"{file}: this shard is missing")


def test_a_truncated_file_is_named(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    assert message(folder).startswith(f"{file}: not a whole safetensors file (")


# --- the rest ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_are_in_the_dtype_and_norms_in_float32(folder: Path, dtype: str) -> None:
    model = load(folder, dtype)
    wanted = getattr(torch, dtype)
    layer = model.weights.layers[0]
    assert {model.weights.embedding.dtype, layer.qkv.weight.dtype, model.weights.head.dtype} == {wanted}
    assert {layer.input_norm.dtype, model.weights.norm.dtype} == {torch.float32}
    (logits, _), _ = run_paged(model, prompts())
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()


def test_without_a_terminal_nothing_is_printed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(folder, progress=True)
    assert capfd.readouterr() == ("", "")


def test_on_a_terminal_a_bar_comes_and_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Terminal:
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

        def flush(self) -> None: ...

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    load(folder, progress=True)
    assert "Loading" in "".join(written)
    written.clear()
    load(folder, progress=False)
    assert written == []


def test_the_weights_outlive_their_files(folder: Path) -> None:
    model = load(folder)
    (expected, _), _ = run_paged(model, prompts())
    for file in folder.iterdir():
        file.unlink()
    gc.collect()
    (found, _), _ = run_paged(model, prompts())
    assert torch.equal(found, expected)
