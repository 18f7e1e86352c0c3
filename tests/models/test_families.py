"""Every family against transformers: random weights, same logits, in one step and in chunks."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, PreTrainedModel

from specserve.models.decoder import Decoder
from specserve.models.specs import FAMILIES
from tests.support.checkpoints import (
    configs,
    gemma,
    load,
    oracle_logits,
    prompts,
    random_model,
    randomize,
)
from tests.support.paged import run_paged

TOLERANCE = 1e-4


def check(oracle: PreTrainedModel, model: Decoder, chunk: int | None = None) -> None:
    found, _ = run_paged(model, prompts(), chunk=chunk)
    for prompt, logits in zip(prompts(), found, strict=True):
        expected = oracle_logits(oracle, prompt)
        assert expected.std() > 0.3  # weights that say something
        torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)


@pytest.fixture(scope="module", params=list(configs()))
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PreTrainedModel, Decoder]:
    oracle = random_model(configs()[request.param])
    folder = tmp_path_factory.mktemp(request.param)
    oracle.save_pretrained(folder)
    return oracle, load(folder)


@pytest.mark.parametrize("chunk", [None, 1, 3, 7])
def test_logits_are_those_of_transformers(pair: tuple[PreTrainedModel, Decoder], chunk: int | None) -> None:
    check(*pair, chunk)


def test_every_text_family_has_a_tiny_checkpoint() -> None:
    tested = {type(random_model(config)).__name__ for config in configs().values()}
    assert tested == {*FAMILIES} - {"Gemma3ForConditionalGeneration"}


def test_features_are_the_streams_between_layers(pair: tuple[PreTrainedModel, Decoder]) -> None:
    """All but the last one, which transformers hands out normed."""
    oracle, model = pair
    wanted = [len(model.layers) - 1, 0, 1]
    _, found = run_paged(model, prompts(), chunk=5, features=wanted)
    for prompt, streams in zip(prompts(), found, strict=True):
        with torch.no_grad():
            states = oracle(input_ids=torch.tensor([prompt]), output_hidden_states=True).hidden_states
        expected = torch.cat([states[layer][0] for layer in wanted], dim=-1)
        torch.testing.assert_close(streams, expected, atol=TOLERANCE, rtol=0)


def test_the_last_feature_comes_before_the_final_norm(pair: tuple[PreTrainedModel, Decoder]) -> None:
    oracle, model = pair
    _, found = run_paged(model, prompts(), features=[len(model.layers)])
    with torch.no_grad():
        for prompt, stream in zip(prompts(), found, strict=True):
            expected = oracle.lm_head(oracle.model.norm(stream))
            torch.testing.assert_close(expected, oracle_logits(oracle, prompt), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_near(pair: tuple[PreTrainedModel, Decoder], tmp_path: Path, dtype: str) -> None:
    oracle, exact = pair
    oracle.save_pretrained(tmp_path)
    model = load(tmp_path, dtype)
    assert {shape.dtype for shape in model.layers} == {getattr(torch, dtype)}
    assert model.num_bytes < 0.6 * exact.num_bytes
    (found, _), _ = run_paged(model, prompts(), chunk=4)
    expected = oracle_logits(oracle, prompts()[0])
    assert found.dtype == torch.float32
    error = (found - expected).square().mean().sqrt() / expected.std()
    assert error < (0.1 if dtype == "bfloat16" else 0.02)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_checkpoints_stored_in_half_precision_are_read_exactly(tmp_path: Path, stored: torch.dtype) -> None:
    oracle = random_model(configs()["qwen3"])
    deepcopy(oracle).to(stored).save_pretrained(tmp_path)
    for weight in oracle.parameters():
        weight.data = weight.data.to(stored).float()
    check(oracle, load(tmp_path))


def test_shards_are_put_together(tmp_path: Path) -> None:
    oracle = random_model(configs()["llama"])
    oracle.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    check(oracle, load(tmp_path), 7)


def test_a_tied_checkpoint_may_repeat_its_head(tmp_path: Path) -> None:
    oracle = random_model(configs()["llama-tied"])
    oracle.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    assert "lm_head.weight" not in tensors
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, file)
    model = load(tmp_path)
    assert model.weights.head is model.weights.embedding
    check(oracle, model)


def test_a_tied_head_is_counted_once(tmp_path: Path) -> None:
    oracle = random_model(configs()["llama-tied"])
    oracle.save_pretrained(tmp_path)
    assert load(tmp_path).num_bytes == sum(4 * weight.numel() for weight in oracle.parameters())


@pytest.mark.parametrize("family", ["llama", "llama-llama3", "mistral", "qwen2-window", "gemma3-scaled"])
def test_configs_in_the_old_spelling_mean_the_same(tmp_path: Path, family: str) -> None:
    """Checkpoints from before transformers 5: rope_theta beside rope_scaling, no layer_types."""
    oracle = random_model(configs()[family])
    oracle.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    ropes = config.pop("rope_parameters")
    config.pop("layer_types", None)
    if "full_attention" in ropes:
        config["rope_local_base_freq"] = ropes["sliding_attention"]["rope_theta"]
        ropes = ropes["full_attention"]
    config["rope_theta"] = ropes.pop("rope_theta")
    kind = ropes.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {"type": kind, **ropes}
    file.write_text(json.dumps(config))
    check(oracle, load(tmp_path))


@pytest.mark.parametrize(
    "prefixes",
    [("language_model.model.", "language_model.lm_head."), ("model.language_model.", "lm_head.")],
    ids=["old", "new"],
)
def test_the_text_part_of_a_multimodal_gemma_is_found(tmp_path: Path, prefixes: tuple[str, str]) -> None:
    oracle = random_model(gemma())
    renamed = {
        name.replace("model.", prefixes[0], 1): weight.clone() for name, weight in oracle.named_parameters()
    }
    renamed[prefixes[1] + "weight"] = oracle.lm_head.weight.detach().clone()
    renamed["vision_tower.vision_model.post_layernorm.weight"] = torch.ones(3)
    renamed["multi_modal_projector.mm_soft_emb_norm.weight"] = torch.ones(3)
    save_file(renamed, tmp_path / "model.safetensors")
    text = oracle.config.to_dict()
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text, "vision_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    check(oracle, load(tmp_path))


def test_a_multimodal_gemma_as_transformers_saves_it(tmp_path: Path) -> None:
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    config = Gemma3Config(text_config=gemma().to_dict(), vision_config=vision, mm_tokens_per_image=4)
    oracle = Gemma3ForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    randomize(oracle)
    oracle.save_pretrained(tmp_path)
    check(oracle, load(tmp_path))
