"""Default sampling parameters and end tokens, from the model, a folder, or nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specserve.config.engine import engine_config
from specserve.config.generation import default_sampling, end_token_ids
from specserve.errors import ConfigError

MODEL = {
    "temperature": 0.6,
    "top_k": 20,
    "top_p": None,
    "max_new_tokens": 100,
    "eos_token_id": [2, 5],
    "do_sample": True,
}


def sampling(options: dict[str, Any], model: dict[str, Any] = MODEL) -> dict[str, Any]:
    return default_sampling(engine_config(options), model)


def test_the_model_recommends() -> None:
    assert sampling({}) == {"temperature": 0.6, "top_k": 20, "max_tokens": 100}


def test_nobody_recommends() -> None:
    assert sampling({"generation_config": "vllm"}) == {}


def test_a_folder_recommends(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"min_p": 0.1}')
    assert sampling({"generation_config": str(tmp_path)}) == {"min_p": 0.1}


def test_a_folder_without_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give auto, vllm, or a folder with that file"):
        sampling({"generation_config": str(tmp_path)})


def test_single_entries_are_replaced() -> None:
    override = {"temperature": 0.1}
    assert sampling({"override_generation_config": override})["temperature"] == 0.1
    assert sampling({"override_generation_config": override, "generation_config": "vllm"}) == override


def test_an_unknown_entry_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the nearest known name is 'temperature'"):
        sampling({"override_generation_config": {"temprature": 1.0}})


def test_a_recommendation_that_cannot_be_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"generation config: temperature must be .* override_generation_config"
    ):
        sampling({}, {"temperature": 9.0})


@pytest.mark.parametrize(
    ("options", "model", "expected"),
    [
        ({}, MODEL, {2, 5}),
        ({}, {"eos_token_id": 7}, {7}),
        ({}, {}, set()),
        ({"generation_config": "vllm"}, MODEL, {2, 5}),
        ({"override_generation_config": {"eos_token_id": 9}}, MODEL, {9}),
    ],
)
def test_end_tokens(options: dict[str, Any], model: dict[str, Any], expected: set[int]) -> None:
    assert end_token_ids(engine_config(options), model) == expected


@pytest.mark.parametrize("value", ["2", [-1], [2, "x"]])
def test_end_tokens_that_cannot_be(value: Any) -> None:
    with pytest.raises(ConfigError, match="eos_token_id must be a token id or a list of them"):
        end_token_ids(engine_config({}), {"eos_token_id": value})
