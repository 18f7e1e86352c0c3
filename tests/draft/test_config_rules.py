"""Draft sampling × verification, and the parameters of the lossy rules."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from specserve.config.speculative import SpeculativeConfig
from specserve.draft.config_methods import METHODS
from specserve.draft.config_rules import (
    RULES,
    decide_rules,
    synthetic_rates,
    warn_if_lossy,
    with_lossy_parameters,
)
from specserve.errors import ConfigError

SAMPLES = next(method for method in METHODS if method.samples)
LOOKS_UP = next(method for method in METHODS if not method.samples)
LEGAL = {
    ("greedy", "standard"),
    ("greedy", "block"),
    ("greedy", "coupled"),
    ("greedy", "synthetic"),
    ("greedy", "fly"),
    ("probabilistic", "standard"),
    ("probabilistic", "block"),
    ("probabilistic", "synthetic"),
    ("probabilistic", "fly"),
    ("coupled", "coupled"),
}


def config(rule: str, k: int = 4, **keys: Any) -> SpeculativeConfig:
    common = {"method": "m", "model": "a/b", "num_speculative_tokens": k, "draft_sample_method": "greedy"}
    return SpeculativeConfig(**common, rejection_sample_method=rule, **keys)


@pytest.mark.parametrize("draw", ["greedy", "probabilistic", "coupled"])
@pytest.mark.parametrize("rule", RULES)
def test_exactly_the_unbiased_pairs_are_legal(draw: str, rule: str) -> None:
    if (draw, rule) in LEGAL:
        assert decide_rules(rule, draw, SAMPLES) == (rule, draw)
    else:
        with pytest.raises(ConfigError, match=f"draft_sample_method='{draw}' does not go with .*'{rule}'"):
            decide_rules(rule, draw, SAMPLES)


def test_coupled_in_one_key_implies_the_other() -> None:
    assert decide_rules(None, "coupled", SAMPLES) == ("coupled", "coupled")
    assert decide_rules("coupled", None, SAMPLES) == ("coupled", "coupled")
    assert decide_rules(None, None, SAMPLES) == ("standard", "greedy")
    assert decide_rules("coupled", None, LOOKS_UP) == ("coupled", "greedy")


def test_a_drafter_without_probabilities_does_not_draw(caplog: pytest.LogCaptureFixture) -> None:
    assert decide_rules(None, "probabilistic", LOOKS_UP) == ("standard", "greedy")
    assert "draft_sample_method has no effect" in caplog.text


@pytest.mark.parametrize(
    ("length", "k", "rates"),
    [
        (2.5, 3, (1.0, 0.5, 0.0)),
        (1.0, 3, (0.0, 0.0, 0.0)),
        (4.0, 3, (1.0, 1.0, 1.0)),
        (1.25, 2, (0.25, 0.0)),
    ],
)
def test_a_mean_length_becomes_rates_of_least_variance(
    length: float, k: int, rates: tuple[float, ...]
) -> None:
    assert synthetic_rates(length, k) == rates
    assert 1 + sum(rates) == length
    assert (
        with_lossy_parameters(
            config("synthetic", k, synthetic_acceptance_length=length)
        ).synthetic_acceptance_rates
        == rates
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "exactly one of"),
        ({"synthetic_acceptance_rates": [1, 1, 0.5, 0], "synthetic_acceptance_length": 2}, "exactly one of"),
        ({"synthetic_acceptance_rates": [0.5, 0.6, 0.1, 0]}, "must not increase"),
        ({"synthetic_acceptance_rates": [0.5, 0.4]}, "must hold num_speculative_tokens=4 rates, got 2"),
        ({"synthetic_acceptance_rates": [1.5, 1, 1, 1]}, "must be numbers from 0 to 1"),
        ({"synthetic_acceptance_rates": [1, 1, "a", 0]}, "must be numbers from 0 to 1"),
        ({"synthetic_acceptance_length": 5.5}, "must be from 1 to num_speculative_tokens + 1 = 5, got 5.5"),
        ({"synthetic_acceptance_length": 0.5}, "must be from 1 to"),
    ],
)
def test_synthetic_acceptance_that_cannot_be(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_lossy_parameters(config("synthetic", **keys))
    assert message in str(caught.value)


@pytest.mark.parametrize("key", ["synthetic_acceptance_rates", "synthetic_acceptance_length"])
def test_synthetic_keys_need_the_rule(key: str) -> None:
    value: Any = [1, 0, 0, 0] if key.endswith("rates") else 2
    with pytest.raises(ConfigError, match=f"{key} needs rejection_sample_method='synthetic', got 'standard'"):
        with_lossy_parameters(config("standard", **{key: value}))


@pytest.mark.parametrize(
    ("k", "given", "window"), [(2, None, 1), (5, None, 4), (10, None, 6), (10, 9, 9), (3, 1, 1)]
)
def test_the_window_of_fly(k: int, given: int | None, window: int) -> None:
    assert with_lossy_parameters(config("fly", k, fly_window_size=given)).fly_window_size == window


@pytest.mark.parametrize(
    ("k", "keys", "message"),
    [
        (1, {}, "needs num_speculative_tokens of at least 2, got 1"),
        (4, {"fly_window_size": 4}, "fly_window_size must be less than num_speculative_tokens=4, got 4"),
        (4, {"fly_window_size": 0}, "fly_window_size must be an integer, at least 1"),
        (4, {"fly_entropy_top_k": 0}, "fly_entropy_top_k must be an integer, at least 1"),
    ],
)
def test_fly_that_cannot_be(k: int, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_lossy_parameters(config("fly", k, **keys))
    assert message in str(caught.value)


def test_an_endless_threshold_is_allowed() -> None:
    assert config("fly", fly_entropy_threshold="Infinity").fly_entropy_threshold == float("inf")


@pytest.mark.parametrize(("rule", "keys"), [("fly", {}), ("synthetic", {"synthetic_acceptance_length": 2})])
def test_a_lossy_rule_warns_once_and_not_before_it_is_taken(
    rule: str, keys: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        decided = with_lossy_parameters(config(rule, **keys))
        assert not caplog.records
        warn_if_lossy(decided)
    assert len(caplog.records) == 1


def test_flys_warning_has_the_known_words(caplog: pytest.LogCaptureFixture) -> None:
    warn_if_lossy(config("fly"))
    assert "FLy verification is a lossy speculative decoding method" in caplog.text


def test_exact_rules_do_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    for rule in ("standard", "block", "coupled"):
        warn_if_lossy(with_lossy_parameters(config(rule)))
    warn_if_lossy(None)
    assert not caplog.records
