"""Rules by name."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest

from specserve.config.speculative import SpeculativeConfig
from specserve.draft.config_rules import RULES
from specserve.errors import ConfigError
from specserve.verify import VERIFIERS, find_rule, fly, load_verifier, synthetic
from specserve.verify.standard import verify


def test_standard_is_lossless_and_takes_sampled_drafts() -> None:
    assert load_verifier("standard") is verify
    assert find_rule("standard").is_lossless
    assert find_rule("standard").takes_sampled_drafts


def test_a_rule_with_options_gets_them_from_the_configuration() -> None:
    config = SpeculativeConfig(
        method="m",
        model="m",
        num_speculative_tokens=3,
        rejection_sample_method="fly",
        draft_sample_method="greedy",
        fly_window_size=2,
        fly_entropy_threshold=0.5,
        synthetic_acceptance_rates=(1.0, 0.5, 0.0),
    )
    found = load_verifier("fly", config)
    assert isinstance(found, partial)
    assert found.args == (fly.Options(2, 0.5, 3),)
    found = load_verifier("synthetic", config)
    assert isinstance(found, partial)
    assert found.args == (synthetic.Options((1.0, 0.5, 0.0)),)


def test_an_unknown_rule_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(
        ConfigError, match="'standart' is unknown; the nearest known name is 'standard'"
    ) as error:
        load_verifier("standart")
    assert error.value.param == "rejection_sample_method"
    with pytest.raises(ConfigError, match="known: standard, block, coupled, synthetic, fly"):
        load_verifier("qqq")


def test_rules_say_of_themselves_what_the_configuration_knows_of_them() -> None:
    """Two tables, because `draft` and `verify` do not import each other."""
    choices = SpeculativeConfig.__dataclass_fields__["rejection_sample_method"].metadata["option"].choices
    assert [*VERIFIERS] == [*RULES] == [*choices]
    for name, rule in VERIFIERS.items():
        assert rule.is_lossless == (RULES[name].warning is None)
        assert rule.takes_sampled_drafts == ("probabilistic" in RULES[name].draft_samples)


def test_listing_the_rules_imports_none_of_them() -> None:
    code = "import sys; from specserve.verify import VERIFIERS; print(len(VERIFIERS), *sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert found[0] == str(len(VERIFIERS))
    assert "specserve.verify" in found
    assert not {rule.module for rule in VERIFIERS.values()} & set(found)
