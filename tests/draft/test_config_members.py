"""Chains: their members' keys, their own, and whose mistake a mistake is."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from specserve.config.speculative import SpeculativeConfig
from specserve.draft import find_plugins
from specserve.errors import ConfigError, NotBuiltYet
from tests.draft.test_config import refused, resolve

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
SUFFIX = {"method": "suffix", "num_speculative_tokens": 8}


def chain(*members: Any, **keys: Any) -> dict[str, Any]:
    return {"method": "chain", "drafters": list(members), **keys}


def members(config: SpeculativeConfig) -> list[Any]:
    assert config.drafters is not None
    return list(config.drafters)


def sources(config: SpeculativeConfig) -> list[tuple[str, int]]:
    return [(plugin.source, plugin.num_tokens) for plugin in find_plugins(config)]


def test_members_are_decided_each_for_itself() -> None:
    config = resolve(chain(NGRAM, {"method": "ngram_gpu", "num-speculative-tokens": 5}, SUFFIX))
    first, second, third = members(config)
    assert (config.method, config.num_speculative_tokens) == ("chain", 8)
    assert (first.prompt_lookup_min, first.prompt_lookup_max) == (2, 4)
    assert (second.method, second.num_speculative_tokens, second.prompt_lookup_max) == ("ngram", 5, 5)
    assert (third.method, third.suffix_decoding_max_tree_depth) == ("suffix", 24)


def test_predictions_come_first_unless_a_member_says_where() -> None:
    assert sources(resolve(chain(NGRAM, SUFFIX))) == [("prediction", 8), ("ngram", 3), ("suffix", 8)]
    own = {"method": "prediction", "num_speculative_tokens": 16}
    assert sources(resolve(chain(NGRAM, own))) == [("ngram", 3), ("prediction", 16)]
    assert sources(resolve(NGRAM)) == [("prediction", 3), ("ngram", 3)]
    assert sources(resolve(own)) == [("prediction", 16)]


def test_members_of_a_kind_are_told_apart() -> None:
    config = resolve(chain(NGRAM, {**NGRAM, "prompt_lookup_match": "earliest"}, NGRAM))
    assert [name for name, _ in sources(config)] == ["prediction", "ngram", "ngram-2", "ngram-3"]


def test_the_chain_s_number_is_for_members_that_have_none_and_a_limit_for_all() -> None:
    config = resolve(chain({"method": "ngram"}, SUFFIX, num_speculative_tokens=4))
    assert config.num_speculative_tokens == 4
    assert [member.num_speculative_tokens for member in members(config)] == [4, 8]
    assert set(config.draft_lengths[1:]) == {4}


def test_drafters_imply_the_method_and_a_table_applies_to_the_chain() -> None:
    config = resolve({"drafters": [NGRAM], "num_speculative_tokens_per_batch_size": [[1, 2, 3], [3, 8, 0]]})
    assert config.method == "chain"
    assert config.draft_lengths == (0, 3, 3, 0, 0, 0, 0, 0, 0)


def test_rule_and_drawing_are_the_chain_s() -> None:
    config = resolve(chain(NGRAM, rejection_sample_method="block", draft_sample_method="probabilistic"))
    [member] = members(config)
    assert (config.rejection_sample_method, config.draft_sample_method) == ("block", "probabilistic")
    assert (member.rejection_sample_method, member.draft_sample_method) == ("block", "greedy")


def test_a_member_may_draw_its_own_way_and_implies_the_rule_for_it() -> None:
    own = {"model": "my.package.Drafter", "num_speculative_tokens": 2}
    config = resolve(chain(NGRAM, {**own, "draft_sample_method": "coupled"}))
    assert config.rejection_sample_method == "coupled"
    assert [member.draft_sample_method for member in members(config)] == ["greedy", "coupled"]
    config = resolve(chain(NGRAM, own, draft_sample_method="coupled"))
    assert members(config)[1].draft_sample_method == "coupled"
    message = refused(chain({**own, "draft_sample_method": "coupled"}, rejection_sample_method="standard"))
    assert message.startswith("drafters[0]: draft_sample_method='coupled' does not go with")


def test_lossy_parameters_are_checked_once_for_the_chain() -> None:
    config = resolve(chain(NGRAM, SUFFIX, rejection_sample_method="fly"))
    assert config.fly_window_size == 6
    rates = [0.9] * 8
    config = resolve(chain(SUFFIX, rejection_sample_method="synthetic", synthetic_acceptance_rates=rates))
    assert config.synthetic_acceptance_rates == tuple(rates)


def test_keys_of_a_class_stay_with_their_member() -> None:
    own = {"model": "my.package.Drafter", "num_speculative_tokens": 2, "flavour": "loud"}
    config = resolve(chain(NGRAM, own))
    assert [member.extra for member in members(config)] == [{}, {"flavour": "loud"}]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"method": "chain"}, "method 'chain' needs drafters: a list of objects"),
        (chain(), "method 'chain' needs drafters: a list of objects"),
        (chain(NGRAM, "ngram"), "drafters[1]: must be an object with a method, got 'ngram'"),
        (chain(NGRAM, {}), "drafters[1]: speculative_config needs a method"),
        (chain({"method": "ngrm", "num_speculative_tokens": 1}), "drafters[0]: method must be one of"),
        (chain({"method": "ngram"}), "drafters[0]: Method 'ngram' was provided but num_spec"),
        (chain({**NGRAM, "k": 1}), "drafters[0]: speculative_config has the unknown key 'k'"),
        (chain(NGRAM, {**NGRAM, "prompt_lookup_min": 9}), "drafters[1]: prompt_lookup_min=9 must not be"),
        (chain({**NGRAM, "rejection-sample-method": "block"}), "rejection_sample_method is the chain's"),
        (chain(chain(NGRAM)), "drafters[0]: chains do not nest; list all drafters in one"),
        (chain({"drafters": [NGRAM]}), "drafters[0]: chains do not nest"),
        (chain({"method": "ngram-mod,suffix"}), "drafters[0]: chains do not nest"),
        (chain({"method": "none"}), "drafters[0]: speculative_config needs a method"),
        (chain(NGRAM, model="a/b"), "method 'chain' takes no model, each of its drafters has its own"),
        ({**NGRAM, "drafters": [SUFFIX]}, "drafters goes only with method 'chain', got 'ngram'"),
        ({"method": "chain", "drafters": 5}, "drafters must be a JSON list"),
        (chain(NGRAM, num_speculative_tokens=129), "num_speculative_tokens must be"),
        (chain({"method": "medusa"}), "drafters[0]: method 'medusa' was removed"),
    ],
)
def test_what_cannot_be_names_the_member(raw: dict[str, Any], words: str) -> None:
    assert words in refused(raw)


def test_a_mistake_s_key_is_a_path() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(chain(NGRAM, {**NGRAM, "prompt_lookup_min": 9}))
    assert caught.value.param == "drafters[1].prompt_lookup_min"


def test_an_announced_member_is_announced() -> None:
    with pytest.raises(NotBuiltYet, match=r"drafters\[1\]: method 'eagle3' is not built yet"):
        resolve(chain(NGRAM, {"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3}))


def test_a_member_that_cannot_be_imported_is_named() -> None:
    config = resolve(chain(NGRAM, {"model": "no_such_module.Drafter", "num_speculative_tokens": 2}))
    with pytest.raises(ConfigError, match=r"drafters\[1\]: 'no_such_module.Drafter' cannot be imported"):
        find_plugins(config)


def test_a_member_s_key_beside_drafters_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        resolve(chain(NGRAM, prompt_lookup_max=3))
    assert "prompt_lookup_max has no effect with method chain" in caplog.text
