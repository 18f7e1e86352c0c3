"""A configuration resolved from a model's config.json alone; the folders here hold no weights."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from specserve.config.engine import engine_config
from specserve.engine.check import check, num_parameters
from specserve.errors import ConfigError, ModelError, NotBuiltYet
from specserve.models.specs import read_spec

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
LOSSY = {**NGRAM, "rejection_sample_method": "fly"}
BYTES_PER_TOKEN = 2 * 2 * 2 * 4 * 4  # layers, keys and values, heads, head size, float32


def folder(path: Path, config: dict[str, Any], **generation: Any) -> str:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "generation_config.json").write_text(json.dumps(generation))
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return folder(tmp_path / "model", LLAMA, temperature=0.5)


def test_everything_is_resolved(model: str) -> None:
    options = {
        "model": model,
        "speculative_config": NGRAM,
        "kv_cache_memory_bytes": 100 * 32 * BYTES_PER_TOKEN,
    }
    found = check(engine_config({**options, "max_num_seqs": 12}))
    assert found["scheduler"]["num_pages"] == 96  # what 12 sequences of 256 tokens can use
    assert found["scheduler"]["max_model_len"] == 256
    assert found["sampling"] == {"temperature": 0.5}
    assert found["speculation"]["method"] == "ngram"
    assert found["model"]["architecture"] == "LlamaForCausalLM"
    assert found["kv_cache"].endswith("12.00x")
    json.dumps(found)


def test_half_precision_halves_the_cache(model: str) -> None:
    options = {"model": model, "kv_cache_memory_bytes": 10 * 32 * BYTES_PER_TOKEN}
    pages = [
        check(engine_config({**options, "kv_cache_dtype": dtype}))["scheduler"]["num_pages"]
        for dtype in ("auto", "float16")
    ]
    assert pages == [10, 20]


def test_without_speculation_there_is_none(model: str) -> None:
    assert check(engine_config({"model": model}))["speculation"] is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"speculative_config": {"method": "ngram"}}, ConfigError, "num_speculative_tokens was not"),
        ({"speculative_config": {**NGRAM, "method": "mtp"}}, NotBuiltYet, "method 'mtp'"),
        ({"speculative_config": NGRAM, "async_scheduling": True}, ConfigError, "async_scheduling"),
        ({"max_model_len": 257}, ConfigError, "more than the 256 tokens"),
        ({"num_gpu_blocks_override": 7}, ConfigError, "Raise num_gpu_blocks_override to 8"),
        ({"model": "./absent"}, ModelError, "absent"),
    ],
)
def test_what_cannot_be_is_told(
    model: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check(engine_config({"model": model, **options}))


@pytest.mark.parametrize(
    ("options", "is_taken"),
    [({}, True), ({"max_model_len": 512}, False), ({"logits_processors": ["x"]}, False)],
)
def test_a_lossy_rule_warns_only_when_all_else_is_right(
    model: str, options: dict[str, Any], is_taken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = engine_config({"model": model, "speculative_config": LOSSY, **options})
    with nullcontext() if is_taken else pytest.raises(ConfigError):
        check(config)
    assert ("lossy speculative decoding method" in caplog.text) == is_taken


def test_a_speculators_checkpoint_leads_to_its_target(tmp_path: Path, model: str) -> None:
    head = {
        "speculators_model_type": "eagle3",
        "transformer_layer_config": {},
        "speculators_config": {
            "proposal_methods": [{"speculative_tokens": 3}],
            "verifier": {"name_or_path": model},
        },
    }
    with pytest.raises(NotBuiltYet, match="method 'eagle3' is not built yet"):
        check(engine_config({"model": folder(tmp_path / "head", head)}))


def test_parameters_are_counted_by_shape() -> None:
    layer = 16 * (2 * (4 + 2) * 4 + 3 * 32)
    assert num_parameters(read_spec(LLAMA, "here")) == 100 * 16 + 2 * layer
    untied = read_spec({**LLAMA, "tie_word_embeddings": False}, "here")
    assert num_parameters(untied) == 2 * 100 * 16 + 2 * layer
