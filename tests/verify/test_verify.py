"""Rules by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from specserve.errors import ConfigError, NotBuiltYet
from specserve.verify import ANNOUNCED, VERIFIERS, find_rule, load_verifier
from specserve.verify.standard import verify


def test_standard_is_lossless_and_takes_sampled_drafts() -> None:
    assert load_verifier("standard") is verify
    assert find_rule("standard").is_lossless
    assert find_rule("standard").takes_sampled_drafts


@pytest.mark.parametrize("name", ANNOUNCED)
def test_an_announced_rule_says_that_it_is_not_built_yet(name: str) -> None:
    with pytest.raises(NotBuiltYet, match=f"rejection_sample_method '{name}' is not built yet"):
        load_verifier(name)


def test_an_unknown_rule_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="'standart' is unknown; did you mean 'standard'") as error:
        load_verifier("standart")
    assert error.value.param == "rejection_sample_method"
    with pytest.raises(ConfigError, match="known: standard, block, coupled, synthetic, fly"):
        load_verifier("qqq")


def test_listing_the_rules_imports_none_of_them() -> None:
    code = "import sys; from specserve.verify import VERIFIERS; print(len(VERIFIERS), *sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert found[0] == str(len(VERIFIERS))
    assert "specserve.verify" in found
    assert not {rule.target.partition(":")[0] for rule in VERIFIERS.values()} & set(found)
    assert set(VERIFIERS).isdisjoint(ANNOUNCED)
