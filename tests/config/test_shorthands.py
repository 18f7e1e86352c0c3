"""--spec-method, --spec-model, --spec-tokens and their deprecated names."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from specserve.config.shorthands import fold_shorthands
from specserve.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"spec_method": "ngram", "spec_tokens": "3"}, {"method": "ngram", "num_speculative_tokens": 3}),
        ({"spec_model": "a/b", "speculative_config": {"x": 1}}, {"x": 1, "model": "a/b"}),
        (
            {"spec_tokens": 3, "speculative_config": '{"method": "ngram"}'},
            {"method": "ngram", "num_speculative_tokens": 3},
        ),
        (
            {"spec_type": "draft-simple,ngram-mod", "spec_model": "a.gguf"},
            {"method": "draft-simple,ngram-mod", "model": "a.gguf"},
        ),
        ({"spec_default": True}, {"method": "default"}),
    ],
)
def test_shorthands_become_keys(values: dict[str, Any], expected: dict[str, Any]) -> None:
    assert fold_shorthands({**values, "port": "1"}) == {"speculative_config": expected, "port": "1"}


def test_without_shorthands_nothing_changes() -> None:
    assert fold_shorthands({"port": "1"}) == {"port": "1"}
    assert fold_shorthands({"speculative_config": "{"}) == {"speculative_config": "{"}


def test_the_same_key_both_ways_is_refused() -> None:
    message = r"--spec-tokens and --speculative-config\['num_speculative_tokens'\] are mutually exclusive"
    with pytest.raises(ConfigError, match=message):
        fold_shorthands({"spec_tokens": "3", "speculative_config": {"num_speculative_tokens": 4}})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"spec_type": "ngram-mod", "spec_method": "ngram"}, "--spec-type and --spec-method"),
        ({"spec_type": "ngram-mod", "spec_default": True}, "--spec-default and --spec-type"),
        (
            {"spec_default": True, "speculative_config": {"method": "ngram"}},
            r"--spec-default and --speculative-config\['method'\]",
        ),
    ],
)
def test_the_method_is_said_once(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"{words} are mutually exclusive"):
        fold_shorthands(values)


def test_no_default_is_nothing_said() -> None:
    assert fold_shorthands({"spec_default": False}) == {}


def test_a_hyphenated_key_is_not_noticed_and_the_shorthand_comes_later() -> None:
    raw = {"num-speculative-tokens": 4}
    folded = fold_shorthands({"spec_tokens": "3", "speculative_config": raw})
    assert list(folded["speculative_config"].items()) == [
        ("num-speculative-tokens", 4),
        ("num_speculative_tokens", 3),
    ]


def test_deprecated_flags_work_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        folded = fold_shorthands({"speculative_model": "a/b", "num_speculative_tokens": "5"})
    assert folded == {"speculative_config": {"model": "a/b", "num_speculative_tokens": 5}}
    assert "--speculative-model is deprecated; use --spec-model" in caplog.text
    assert "--num-speculative-tokens is deprecated; use --spec-tokens" in caplog.text


def test_a_deprecated_flag_beside_its_successor_is_refused() -> None:
    with pytest.raises(ConfigError, match="--speculative-model and --spec-model are mutually exclusive"):
        fold_shorthands({"speculative_model": "a", "spec_model": "b"})


@pytest.mark.parametrize("values", [{"spec_tokens": "many"}, {"spec_tokens": 3, "speculative_config": "[]"}])
def test_values_are_checked(values: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"(spec_tokens must be an integer|speculative_config must be a JSON)"
    ):
        fold_shorthands(values)
