"""What a draft checkpoint's config.json says, in order of trust."""

from __future__ import annotations

from typing import Any

import pytest

from specserve.draft.config_checkpoint import default_tokens, detect, entry, predicted_tokens
from specserve.errors import ConfigError


@pytest.mark.parametrize(
    ("model", "checkpoint", "method"),
    [
        ("a/eagle-b", {"speculators_model_type": "dspark", "architectures": ["DFlashDraftModel"]}, "dspark"),
        ("a/eagle-b", {"architectures": ["DFlashDraftModel"], "model_type": "mimo_mtp"}, "dflash"),
        ("a/b", {"architectures": ["MuseGlimmerAssistantModel"]}, "dflash"),
        ("a/b", {"architectures": ["Eagle3LlamaForCausalLM"]}, "eagle3"),
        ("a/b", {"architectures": ["LlamaForCausalLMEagle3"]}, "eagle3"),
        ("a/b", {"architectures": ["EagleLlamaForCausalLM"]}, "eagle"),
        ("a/b", {"architectures": ["DeepSeekMTPModel"]}, "mtp"),
        ("a/eagle3-b", {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "eagle3"),
        ("a/b", {"model_type": "gemma4_assistant"}, "mtp"),
        ("a/b", {"model_type": "deepseek_mtp"}, "mtp"),
        ("a/EAGLE-b", None, "eagle"),
        ("a/b-DFlash", None, "dflash"),
    ],
)
def test_the_most_certain_word_counts(model: str, checkpoint: Any, method: str) -> None:
    detected = detect(model, checkpoint)
    assert detected is not None
    assert detected.method == method


def test_a_plain_model_says_nothing() -> None:
    assert detect("a/b", {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}) is None


def test_only_a_name_is_uncertain() -> None:
    for model, checkpoint, is_certain in [
        ("a/eagle3", {}, False),
        ("a", {"speculators_model_type": "mtp"}, True),
    ]:
        detected = detect(model, checkpoint)
        assert detected is not None
        assert detected.is_certain is is_certain


def test_peagle_is_eagle3_that_drafts_in_parallel() -> None:
    detected = detect("a/b", {"speculators_model_type": "peagle"})
    assert detected is not None
    assert (detected.method, detected.is_parallel) == ("eagle3", True)


def test_an_unknown_kind_of_speculators_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="speculators_model_type 'novel' of the draft is none of eagle, eagle3"
    ):
        detect("a/b", {"speculators_model_type": "novel"})


def test_entries_are_found_in_the_networks_own_part() -> None:
    assert entry({"transformer_layer_config": {"vocab_size": 7}}, "vocab_size") == 7
    assert entry({"text_config": {"vocab_size": 7}, "vocab_size": 8}, "vocab_size") == 8
    assert entry({"b": 2}, "a", "b") == 2
    assert entry({}, "a") is None


def test_layers_that_predict_count_for_mtp_only() -> None:
    checkpoint = {"num_nextn_predict_layers": 3, "block_size": 7}
    assert predicted_tokens("mtp", checkpoint) == 3
    assert predicted_tokens("draft_model", checkpoint) is None
    assert default_tokens("mtp", checkpoint) == 3
    assert default_tokens("dspark", checkpoint) == 7
    assert default_tokens("dflash", checkpoint) is None
