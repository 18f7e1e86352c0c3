"""A speculators checkpoint given as the model to serve."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from specserve.config.engine import EngineConfig
from specserve.draft.config_speculators import follow_speculators
from specserve.errors import ConfigError

CHECKPOINT: dict[str, Any] = {
    "speculators_model_type": "eagle3",
    "transformer_layer_config": {"model_type": "llama"},
    "speculators_config": {
        "proposal_methods": [{"speculative_tokens": 3}],
        "verifier": {"name_or_path": "org/target"},
    },
}


def test_an_ordinary_model_is_served_as_it_is() -> None:
    config = EngineConfig(model="org/plain")
    assert follow_speculators(config, {"model_type": "llama"}) is config


def test_the_target_is_served_with_the_checkpoint_as_its_drafter() -> None:
    config = follow_speculators(EngineConfig(model="org/head"), CHECKPOINT)
    assert config.model == "org/target"
    assert config.served_model_name == ("org/head",)
    assert config.speculative_config == {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}


def test_given_keys_add_but_method_and_model_are_locked(caplog: pytest.LogCaptureFixture) -> None:
    given = {"num_speculative_tokens": 5, "method": "ngram", "model": "other", "revision": "v1"}
    config = EngineConfig(model="org/head", served_model_name=("x",), speculative_config=given)
    found = follow_speculators(config, CHECKPOINT)
    assert found.served_model_name == ("x",)
    assert found.speculative_config == {
        "method": "eagle3",
        "model": "org/head",
        "num_speculative_tokens": 5,
        "revision": "v1",
    }
    assert "method is 'eagle3', as org/head says" in caplog.text


@pytest.mark.parametrize(
    ("kind", "method"), [("peagle", "eagle3"), ("dflash2", "dflash"), ("dspark", "dspark")]
)
def test_kinds_that_draft_in_parallel(kind: str, method: str) -> None:
    config = follow_speculators(EngineConfig(model="h"), {**CHECKPOINT, "speculators_model_type": kind})
    assert config.speculative_config is not None
    assert config.speculative_config["method"] == method
    assert config.speculative_config["parallel_drafting"] is True


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (["transformer_layer_config"], "transformer_layer_config"),
        (["speculators_model_type"], "speculators_model_type"),
        (["speculators_config", "verifier"], "speculators_config.verifier.name_or_path"),
        (["speculators_config", "verifier", "name_or_path"], "speculators_config.verifier.name_or_path"),
        (
            ["speculators_config", "proposal_methods", 0],
            "speculators_config.proposal_methods.0.speculative_tokens",
        ),
    ],
)
def test_a_missing_entry_is_named(path: list[Any], name: str) -> None:
    checkpoint = copy.deepcopy(CHECKPOINT)
    inside = checkpoint
    for step in path[:-1]:
        inside = inside[step]
    del inside[path[-1]]
    with pytest.raises(ConfigError, match=f"Invalid speculators config structure: org/head has no {name}"):
        follow_speculators(EngineConfig(model="org/head"), checkpoint)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="'novel' is none of eagle, eagle3, peagle"):
        follow_speculators(EngineConfig(model="h"), {**CHECKPOINT, "speculators_model_type": "novel"})
