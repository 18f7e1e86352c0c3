"""llama.cpp's words for drafters."""

from __future__ import annotations

from typing import Any

import pytest

from specserve.draft import find_plugins
from specserve.draft.config import resolve_speculative
from specserve.draft.config_methods import known_methods
from specserve.draft.config_spelled import WORDS, spelled_out
from tests.draft.test_config import TARGET, refused, resolve, unbuilt


def spelled(method: str, **keys: Any) -> Any:
    return spelled_out({"method": method, **keys}, known_methods())


@pytest.mark.parametrize(
    ("word", "method"),
    [
        ("ngram-simple", "ngram"),
        ("ngram-map-k", "ngram"),
        ("ngram-map-k4v", "ngram"),
        ("ngram-mod", "ngram"),
        ("ngram-cache", "suffix"),
        ("default", "chain"),
    ],
)
def test_a_word_alone_is_enough(word: str, method: str) -> None:
    config = resolve({"method": word})
    assert config.method == method
    assert config.num_speculative_tokens >= 3


@pytest.mark.parametrize(
    ("word", "method"),
    [
        ("draft-eagle3", "eagle3"),
        ("draft-mtp", "mtp"),
        ("draft-dflash", "dflash"),
        ("draft-dspark", "dspark"),
    ],
)
def test_words_for_drafts_are_our_methods(word: str, method: str) -> None:
    more = {} if WORDS[word].get("num_speculative_tokens") else {"num_speculative_tokens": 7}
    assert unbuilt({"method": word, "model": "a/b", **more}) == f"method {method!r} is not built yet."


@pytest.mark.parametrize("word", ["draft", "draft-simple"])
def test_a_plain_draft_is_a_draft_model(word: str) -> None:
    assert resolve({"method": word, "model": "draft.gguf"}).method == "draft_model"


def test_keys_beside_a_word_go_before_what_it_stands_for() -> None:
    config = resolve({"method": "ngram-mod", "num-speculative-tokens": 6, "prompt_lookup_min": 1})
    assert (config.num_speculative_tokens, config.prompt_lookup_min, config.prompt_lookup_max) == (6, 1, 4)


def test_none_is_no_speculation() -> None:
    assert resolve_speculative({"method": "none"}, TARGET, max_num_seqs=4) is None


def test_our_own_names_stay_as_they_are() -> None:
    for method in known_methods():
        assert spelled(method, model="a/b") == {"method": method, "model": "a/b"}


def test_commas_make_a_chain_and_each_key_goes_where_it_belongs() -> None:
    found = spelled(
        "draft-simple, ngram-mod,suffix",
        model="draft.gguf",
        prompt_lookup_max=3,
        suffix_decoding_max_tree_depth=12,
        rejection_sample_method="block",
        quantization="int4",
    )
    draft, ngram, suffix = found.pop("drafters")
    assert found == {"method": "chain", "rejection_sample_method": "block"}
    assert draft == {**WORDS["draft-simple"], "model": "draft.gguf", "quantization": "int4"}
    assert ngram == {**WORDS["ngram-mod"], "prompt_lookup_max": 3}
    assert suffix == {"method": "suffix", "suffix_decoding_max_tree_depth": 12}


def test_a_number_of_tokens_is_for_all_of_them() -> None:
    config = resolve({"method": "ngram-simple,suffix", "num_speculative_tokens": 5})
    plugins = {plugin.source: plugin.num_tokens for plugin in find_plugins(config)}
    assert plugins == {"prediction": 5, "ngram": 5, "suffix": 5}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"method": "ngram-mod,ngrm"}, "'ngrm' cannot be one of several; the nearest known name is 'ngram'"),
        ({"method": "ngram-mod,"}, "'' cannot be one of several"),
        ({"method": "ngram-mod,default"}, "'default' cannot be one of several"),
        ({"method": "ngram-mod,chain"}, "'chain' cannot be one of several"),
        ({"method": "ngram-mod,none"}, "'none' cannot be one of several"),
        ({"method": "ngram-mod,suffix", "model": "a.gguf"}, "none of them would take it"),
        ({"method": "draft-simple,draft-eagle3", "model": "a"}, "draft_model and eagle3 would take it"),
        ({"method": "ngram-mod,suffix", "k": 3}, "unknown key 'k'"),
        ({"method": "ngram_mod", "num_speculative_tokens": 3}, "nearest known name is 'ngram'"),
    ],
)
def test_what_cannot_be_spelled_out_is_said(raw: dict[str, Any], words: str) -> None:
    assert words in refused(raw)
