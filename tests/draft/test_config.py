"""`speculative_config` from raw keys to a complete configuration: accept and reject pairs of every rule."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specserve.config.speculative import SpeculativeConfig
from specserve.draft.config import TargetInfo, resolve_speculative
from specserve.draft.config_keys import read_keys
from specserve.draft.config_methods import METHODS, MTP_NAMES, Method, known_methods
from specserve.draft.config_model import decide_model
from specserve.errors import ConfigError, NotBuiltYet

TARGET = TargetInfo(model="org/target", vocab_size=1000, max_model_len=2048, num_layers=8, hidden_size=64)
NGRAM = {"method": "ngram", "num_speculative_tokens": 4}


def resolve(raw: Mapping[str, Any], target: TargetInfo = TARGET, **options: Any) -> SpeculativeConfig:
    config = resolve_speculative(raw, target, **{"max_num_seqs": 8, **options})
    assert config is not None
    return config


def refused(raw: Mapping[str, Any], target: TargetInfo = TARGET, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(raw, target, **options)
    return str(caught.value)


def unbuilt(raw: Mapping[str, Any], target: TargetInfo = TARGET, **options: Any) -> str:
    """Legal, and announced only."""
    with pytest.raises(NotBuiltYet) as caught:
        resolve(raw, target, **options)
    return str(caught.value)


def legal(raw: Mapping[str, Any], target: TargetInfo = TARGET, **options: Any) -> None:
    """Of a method that is built, or announced."""
    with suppress(NotBuiltYet):
        resolve(raw, target, **options)


def reads(**checkpoint: Any) -> dict[str, Any]:
    return {"read_checkpoint": lambda *_: checkpoint}


# --- which method ---------------------------------------------------------------------------------


def test_no_configuration_is_no_speculation() -> None:
    assert resolve_speculative(None, TARGET, max_num_seqs=8) is None


@pytest.mark.parametrize(
    "raw",
    [
        {"method": "ngram"},
        {"method": "ngram_gpu"},
        {"method": "[ngram]"},
        {"model": "ngram"},
        {"model": "[ngram]"},
        {"method": "ngram", "model": "ngram"},
    ],
)
def test_all_spellings_of_ngram_are_one_drafter(raw: dict[str, Any]) -> None:
    config = resolve({**raw, "num_speculative_tokens": 4})
    assert config.method == "ngram"
    assert (config.prompt_lookup_min, config.prompt_lookup_max) == (5, 5)
    assert (config.rejection_sample_method, config.draft_sample_method) == ("standard", "greedy")


def test_hyphens_stand_for_underscores_and_the_later_wins() -> None:
    config = resolve({"method": "ngram", "num-speculative-tokens": 3, "prompt-lookup-max": 2})
    assert (config.num_speculative_tokens, config.prompt_lookup_max) == (3, 2)
    both = {"method": "ngram", "num-speculative-tokens": 3, "num_speculative_tokens": 5}
    assert resolve(both).num_speculative_tokens == 5


@pytest.mark.parametrize("name", sorted(MTP_NAMES))
def test_old_mtp_names_are_renamed_with_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert unbuilt({"method": name, "num_speculative_tokens": 1}) == "method 'mtp' is not built yet."
    assert f"method {name} is deprecated, replaced by mtp" in caplog.text


def test_there_are_27_mtp_names_with_the_new_one() -> None:
    assert len(MTP_NAMES | {"mtp"}) == 27


@pytest.mark.parametrize("method", ["medusa", "mlp_speculator"])
def test_removed_methods_say_so_and_list_what_exists(method: str) -> None:
    message = refused({"method": method, "model": "a/b", "num_speculative_tokens": 3})
    assert message.startswith(
        f"method {method!r} was removed; there are ngram, ngram_gpu, suffix, draft_model"
    )


def test_an_unknown_method_is_told_the_nearest() -> None:
    message = refused({"method": "egle3", "num_speculative_tokens": 3})
    assert "got 'egle3'; the nearest known name is 'eagle3'." in message


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ({"method": "eagle", "model": "a/b"}, "eagle"),
        ({"model": "yuhuili/EAGLE-LLaMA3-Instruct-8B"}, "eagle"),
        ({"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}, "eagle3"),
        ({"model": "z-lab/Qwen3-8B-DFlash-b16"}, "dflash"),
        ({"model": "deepseek-ai/dspark_qwen3_8b_block7"}, "dspark"),
        ({"method": "mtp"}, "mtp"),
        ({"method": "dspark"}, "dspark"),
        ({"method": "dflash", "model": "a/b"}, "dflash"),
    ],
)
def test_announced_methods_are_recognised(raw: dict[str, Any], name: str) -> None:
    message = unbuilt({"num_speculative_tokens": 3, **raw})
    assert message == f"method {name!r} is not built yet."


@pytest.mark.parametrize("raw", [{"method": "draft_model", "model": "a/b"}, {"model": "draft.gguf"}])
def test_a_model_that_nothing_speaks_about_is_a_draft_model(raw: dict[str, Any]) -> None:
    assert resolve({**raw, "num_speculative_tokens": 3}).method == "draft_model"


@pytest.mark.parametrize("key", ["use_heterogeneous_vocab", "parallel_drafting"])
def test_of_a_draft_model_these_are_announced(key: str) -> None:
    assert unbuilt({**DRAFT, key: True}) == f"{key} of method 'draft_model' is not built yet."


@pytest.mark.parametrize("method", [{}, {"method": "custom_class"}])
def test_a_dotted_path_is_a_class(method: dict[str, str]) -> None:
    config = resolve({**method, "model": "my.package.Drafter", "num_speculative_tokens": 3, "own": 1})
    assert (config.method, config.model, config.extra) == ("custom_class", "my.package.Drafter", {"own": 1})


def hidden_states(*layers: Any, **keys: Any) -> dict[str, Any]:
    config = {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(layers)}}
    return {"method": "extract_hidden_states", "draft_model_config": config, **keys}


def test_hidden_states_need_their_layers_and_no_number() -> None:
    assert resolve(hidden_states(0, 8, 2)).num_speculative_tokens == 1
    assert "needs num_speculative_tokens=1, got 2" in refused(hidden_states(1, num_speculative_tokens=2))
    for given in ({"method": "extract_hidden_states"}, hidden_states()):
        assert "eagle_aux_hidden_state_layer_ids must be set" in refused(given)
    for layers in ((9,), (-1,), (2, 2), ("2",), (True,)):
        assert "different layers from 0 (the embedding) to 8 (before the last norm)" in refused(
            hidden_states(*layers)
        )


# --- which model ----------------------------------------------------------------------------------


def test_nothing_to_go_by_lists_the_methods() -> None:
    assert refused({}).startswith("speculative_config needs a method: ngram, ")


def test_a_number_of_tokens_without_a_model_is_refused() -> None:
    message = refused({"num_speculative_tokens": 3})
    assert message.startswith("num_speculative_tokens was provided but without speculative model.")


@pytest.mark.parametrize(
    "method", [one.name for one in METHODS if one.model == "required" and not one.is_built]
)
@pytest.mark.parametrize("k", [{}, {"num_speculative_tokens": 3}])
def test_an_announced_method_does_not_ask_for_the_model_it_could_not_use(
    method: str, k: dict[str, int]
) -> None:
    assert unbuilt({"method": method, **k}) == f"method {method!r} is not built yet."


@pytest.mark.parametrize("method", ["mtp", "dspark"])
def test_an_announced_method_of_the_target_does_not_ask_for_a_number(method: str) -> None:
    assert unbuilt({"method": method}) == f"method {method!r} is not built yet."


@pytest.mark.parametrize(
    ("k", "message"),
    [
        ({}, "method 'built' needs a draft checkpoint in model."),
        ({"num_speculative_tokens": 3}, "num_speculative_tokens was provided but without speculative model."),
    ],
)
def test_a_built_method_asks_for_the_checkpoint_it_needs(k: dict[str, int], message: str) -> None:
    methods = {"built": Method("built", build="a:b", model="required")}
    with pytest.raises(ConfigError, match=f"^{message}"):
        decide_model({"method": "built", **k}, TARGET, methods, None)


def test_a_class_needs_its_path() -> None:
    message = refused({"method": "custom_class", "num_speculative_tokens": 3})
    assert message.startswith("method 'custom_class' needs a class path in model")
    assert "needs a full module path" in refused(
        {"method": "custom_class", "model": "Drafter", "num_speculative_tokens": 1}
    )


@pytest.mark.parametrize(
    ("raw", "what"), [({"method": "ngram"}, "Method 'ngram'"), ({"model": "a/b"}, "A speculative model")]
)
def test_without_a_number_of_tokens_it_is_asked_for(raw: dict[str, Any], what: str) -> None:
    message = f"{what} was provided but num_speculative_tokens was not; say how many tokens to guess."
    assert refused(raw) == message


@pytest.mark.parametrize("k", [0, -1, 129, 2.5, "many", True])
def test_a_number_of_tokens_that_cannot_be(k: Any) -> None:
    message = refused({"method": "ngram", "num_speculative_tokens": k})
    assert message == f"num_speculative_tokens must be an integer, at least 1, at most 128, got {k!r}."


def test_the_largest_number_of_tokens() -> None:
    assert resolve({"method": "ngram", "num_speculative_tokens": 128}).num_speculative_tokens == 128


def test_suffix_takes_its_depth_for_the_number(caplog: pytest.LogCaptureFixture) -> None:
    assert resolve({"method": "suffix"}).num_speculative_tokens == 24
    assert "suffix_decoding_max_tree_depth=24" in caplog.text
    assert resolve({"method": "suffix", "suffix_decoding_max_tree_depth": 500}).num_speculative_tokens == 128
    raw = {"method": "suffix", "suffix_decoding_max_tree_depth": 64}
    assert resolve(raw).num_speculative_tokens == 64
    assert resolve({**raw, "num_speculative_tokens": 8}).num_speculative_tokens == 8


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            {"num_spec_tokens": 1},
            "unknown key 'num_spec_tokens'; the nearest known name is 'num_speculative_tokens'.",
        ),
        (
            {"synthetic_acceptance_rate": 0.5},
            "give synthetic_acceptance_rates or synthetic_acceptance_length",
        ),
        (
            {"tensor_parallel_size": 1},
            "tensor_parallel_size is the target's; give draft_tensor_parallel_size",
        ),
        (
            {"tensor-parallel-size": 1},
            "tensor_parallel_size is the target's; give draft_tensor_parallel_size",
        ),
        ({"speculative_token_tree": "[(0,)]"}, "draft trees, which are out of scope"),
        ({"disable_by_batch_size": 4}, "give num_speculative_tokens_per_batch_size"),
        ({"target_model_config": {}}, "is filled in by the engine"),
        ({"prompt_lookup_match": "latest"}, "prompt_lookup_match must be one of recent, earliest"),
        ({"prompt_lookup_max": 0}, "prompt_lookup_max must be an integer, at least 1, got 0"),
        ({"suffix_decoding_max_tree_depth": 0}, "at least 1"),
        ({"suffix_decoding_max_cached_requests": -1}, "at least 0"),
        ({"suffix_decoding_max_spec_factor": -0.1}, "at least 0"),
        ({"suffix_decoding_min_token_prob": 1.1}, "at most 1"),
        ({"suffix_decoding_cache": "on"}, "suffix_decoding_cache must be one of off, per-tenant, shared"),
        ({"suffix_decoding_max_memory": -1}, "suffix_decoding_max_memory must be an integer"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype must be one of"),
        (
            {"draft_lm_head_quantization": "int2"},
            "draft_lm_head_quantization must be one of int8, int4, fp8, nvfp4",
        ),
        ({"rejection_sample_method": "typical"}, "must be one of standard, block, coupled, synthetic, fly"),
        ({"draft_sample_method": "gumbel"}, "must be one of greedy, probabilistic, coupled"),
        ({"attention_backend": "FLASH_ATN"}, "the nearest known name is 'FLASH_ATTN'."),
        ({"dspark_draft_topk": 4}, "dspark_draft_topk goes only with method 'dspark', got 'ngram'"),
        ({"index_share_for_mtp_iteration": True}, "goes only with method 'mtp', got 'ngram'"),
        ({"use_heterogeneous_vocab": True}, "goes only with method 'draft_model', got 'ngram'"),
        ({"max_model_len": 4096}, "max_model_len=4096 of the draft is more than the draft's 2048."),
    ],
)
def test_a_key_that_cannot_be_is_refused(raw: dict[str, Any], message: str) -> None:
    assert message in refused({**NGRAM, **raw})


@pytest.mark.parametrize(
    ("raw", "name", "expected"),
    [
        ({"prompt_lookup_min": 2, "prompt_lookup_max": 4}, "prompt_lookup_max", 4),
        ({"prompt_lookup_min": 2}, "prompt_lookup_max", 2),
        ({"prompt_lookup_max": 3}, "prompt_lookup_min", 3),
        ({"prompt_lookup_match": "earliest"}, "prompt_lookup_match", "earliest"),
        ({"attention_backend": "flash_attn"}, "attention_backend", "FLASH_ATTN"),
        ({"attention_backend": "Auto"}, "attention_backend", None),
        ({"max_model_len": 100}, "max_model_len", 100),
        ({}, "max_model_len", 2048),
        ({}, "draft_tensor_parallel_size", 1),
        ({"draft_tensor_parallel_size": 1}, "draft_tensor_parallel_size", 1),
        ({"disable_eagle_block_drop": True}, "disable_eagle_block_drop", True),
        ({"disable_padded_drafter_batch": True}, "disable_padded_drafter_batch", True),
        ({"enforce_eager": True}, "enforce_eager", True),
        ({"quantization": None}, "quantization", None),
        ({"suffix_decoding_max_cached_requests": 0}, "suffix_decoding_max_cached_requests", 0),
        ({"suffix_decoding_max_memory": "4M"}, "suffix_decoding_max_memory", 2**22),
        ({}, "suffix_decoding_cache", "per-tenant"),
        ({"draft_lm_head_quantization": "fp8"}, "draft_lm_head_quantization", "int8"),
        ({"draft_lm_head_quantization": "nvfp4"}, "draft_lm_head_quantization", "int4"),
        ({"draft_lm_head_quantization": "int4"}, "draft_lm_head_quantization", "int4"),
    ],
)
def test_a_key_is_taken(raw: dict[str, Any], name: str, expected: Any) -> None:
    assert getattr(resolve({**NGRAM, **raw}), name) == expected


def test_lookup_bounds_in_the_wrong_order_are_refused_with_both_values() -> None:
    message = refused({**NGRAM, "prompt_lookup_min": 5, "prompt_lookup_max": 2})
    assert message == "prompt_lookup_min=5 must not be larger than prompt_lookup_max=2."


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"suffix_decoding_cache": "off"}, "has nothing to keep: suffix_decoding_cache='off'"),
        ({"suffix_decoding_max_cached_requests": 0}, "suffix_decoding_max_cached_requests=0; leave it out"),
        ({"suffix_decoding_store": "."}, "suffix_decoding_store='.' is a folder; name a file."),
        ({"suffix_decoding_store": "absent/a"}, "'absent/a' lies in no folder that exists; make it first."),
    ],
)
def test_a_store_that_cannot_be_kept_is_refused(raw: dict[str, Any], message: str, tmp_path: Path) -> None:
    suffix = {"method": "suffix", "suffix_decoding_store": str(tmp_path / "outputs")}
    assert resolve(suffix).suffix_decoding_store == str(tmp_path / "outputs")
    assert message in refused({**suffix, **raw})
    resolve({**NGRAM, "suffix_decoding_store": "absent/a"})  # without effect there


def test_keys_of_other_methods_are_said_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    resolve({**NGRAM, "suffix_decoding_max_tree_depth": 8, "parallel_drafting": True, "prompt_lookup_min": 2})
    assert (
        "suffix_decoding_max_tree_depth has no effect with method ngram; it belongs to suffix." in caplog.text
    )
    assert (
        "parallel_drafting has no effect with method ngram; it belongs to draft_model and eagle3."
        in caplog.text
    )
    assert "prompt_lookup_min" not in caplog.text


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"suffix_decoding_max_tree_depth": 24}, "method ngram; it belongs to suffix."),
        ({"draft_model_config": {}}, "method ngram; it belongs to extract_hidden_states."),
        ({"fly_window_size": 2}, "rejection_sample_method standard; it belongs to fly."),
        ({"fly_entropy_top_k": 3}, "rejection_sample_method standard; it belongs to fly."),
        ({"model": "a/b"}, "method ngram; it belongs to methods with a draft checkpoint."),
        ({"revision": "v2"}, "method ngram; it belongs to methods with a draft checkpoint."),
        ({"quantization": "int8"}, "method ngram; it belongs to methods with a draft checkpoint."),
        ({"max_model_len": 100}, "method ngram; it belongs to methods with a draft checkpoint."),
    ],
)
def test_a_key_without_effect_is_told_with_its_owner_whatever_its_value(
    raw: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    resolve({**NGRAM, **raw})
    [record] = caplog.records
    assert record.getMessage() == f"speculative_config: {next(iter(raw))} has no effect with {message}"


@pytest.mark.parametrize(
    "raw",
    [
        {**NGRAM, "model": "ngram"},
        {**NGRAM, "model": "[ngram]"},
        {**NGRAM, "prompt_lookup_match": "recent", "draft_sample_method": "greedy"},
        {**NGRAM, "method": "ngram_gpu", "prompt_lookup_max": 3},
        {**NGRAM, "rejection_sample_method": "fly", "fly_window_size": 2},
        {"method": "default"},
        {"method": "ngram-mod,suffix", "prompt_lookup_max": 4},
        {"model": "my.package.Drafter", "num_speculative_tokens": 3, "quantization": "int8"},
    ],
)
def test_keys_with_an_effect_are_not_warned_of(raw: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    resolve(raw)
    assert "has no effect" not in caplog.text


def test_quantised_heads_of_other_formats_are_taken_over_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        unbuilt({"method": "mtp", "num_speculative_tokens": 1, "draft_lm_head_quantization": "fp8"})
    assert "draft_lm_head_quantization fp8 is taken as int8" in caplog.text


# --- what the target decides ----------------------------------------------------------------------


def test_what_is_left_open_is_inherited() -> None:
    target = replace(TARGET, kv_cache_dtype="float16", moe_backend="triton", quantization="int8")
    config = resolve(NGRAM, target)
    assert (config.kv_cache_dtype, config.moe_backend) == ("float16", "triton")
    assert config.quantization is None  # a draft's weights are its own
    own = resolve({**NGRAM, "kv_cache_dtype": "float32", "moe_backend": "other"}, target)
    assert (own.kv_cache_dtype, own.moe_backend) == ("float32", "other")


def test_a_drafter_inside_the_target_inherits_its_quantisation() -> None:
    target = replace(TARGET, quantization="int8")
    for raw, expected in [
        ({"method": "mtp", "num_speculative_tokens": 1}, "int8"),
        ({"method": "dspark", "num_speculative_tokens": 1}, "int8"),
        ({"method": "mtp", "model": "a/b", "num_speculative_tokens": 1}, None),
        ({"method": "eagle3", "model": "a/b", "num_speculative_tokens": 1}, None),
    ]:
        methods = known_methods()
        given, _ = read_keys(raw, methods)
        drafting = decide_model(given, target, methods, None)
        assert drafting.quantization == expected
        assert drafting.model == raw.get("model", "org/target")


def test_draft_parallelism_is_one_or_the_targets() -> None:
    target = replace(TARGET, tensor_parallel_size=4)
    eagle = {"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3}
    for size in (None, 1, 4):
        unbuilt({**eagle, "draft_tensor_parallel_size": size}, target)
    message = refused({**eagle, "draft_tensor_parallel_size": 3}, target)
    assert "cannot be other value than 1 or target model tensor_parallel_size=4" in message
    message = refused({**eagle, "method": "draft_model", "draft_tensor_parallel_size": 1}, target)
    assert "must equal the target's 4" in message


# --- async scheduling -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", [method.name for method in METHODS if method.can_run_async])
def test_async_scheduling_goes_with_some_methods(method: str) -> None:
    raw = {"method": method, "num_speculative_tokens": 2, "model": "a/b"}
    if method == "ngram_gpu":
        assert resolve(raw, async_scheduling=True).method == "ngram"
    else:
        legal(raw, async_scheduling=True)


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_async_scheduling_does_not_go_with_others(method: str) -> None:
    raw = {"method": method, "num_speculative_tokens": 2}
    message = refused(raw, async_scheduling=True)
    assert message.startswith(f"async_scheduling does not go with method {method!r}, only with ngram_gpu")
    for implicit in (None, False):
        resolve(raw, async_scheduling=implicit)


def test_async_scheduling_does_not_go_with_an_unpadded_batch() -> None:
    raw = {"method": "ngram_gpu", "num_speculative_tokens": 2, "disable_padded_drafter_batch": True}
    assert "disable_padded_drafter_batch" in refused(raw, async_scheduling=True)


# --- other combinations ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rival",
    [
        {"use_heterogeneous_vocab": True},
        {"rejection_sample_method": "fly"},
        {"enable_adaptive_verification": True},
    ],
)
def test_local_argmax_does_not_go_with_these(rival: dict[str, Any]) -> None:
    raw = {
        "method": "draft_model",
        "model": "a/b",
        "num_speculative_tokens": 3,
        "use_local_argmax_reduction": True,
    }
    legal(raw)
    assert "use_local_argmax_reduction does not go with" in refused({**raw, **rival})


def test_local_argmax_goes_with_adaptive_verification_of_dspark() -> None:
    raw = {
        "use_local_argmax_reduction": True,
        "enable_adaptive_verification": True,
        "num_speculative_tokens": 3,
    }
    assert unbuilt({"method": "dspark", **raw}) == "method 'dspark' is not built yet."


def test_adaptive_verification_is_announced() -> None:
    assert (
        unbuilt({**NGRAM, "enable_adaptive_verification": True})
        == "enable_adaptive_verification is not built yet."
    )


def test_a_table_of_draft_lengths_is_looked_up() -> None:
    table = [[1, 2, 9], [4, 5, 1]]
    config = resolve({**NGRAM, "num_speculative_tokens_per_batch_size": table})
    assert config.draft_lengths == (0, 4, 4, 4, 1, 1, 1, 1, 1)
    assert config.num_speculative_tokens_per_batch_size == ((1, 2, 9), (4, 5, 1))
    assert resolve(NGRAM).draft_lengths == (0, 4, 4, 4, 4, 4, 4, 4, 4)


def test_several_engines_drop_the_table(caplog: pytest.LogCaptureFixture) -> None:
    raw = {**NGRAM, "num_speculative_tokens_per_batch_size": [[1, 8, 1]]}
    config = resolve(raw, data_parallel_size=2)
    assert config.draft_lengths == (0,) + (4,) * 8
    assert "num_speculative_tokens_per_batch_size is off" in caplog.text


# --- what only the checkpoint can tell ------------------------------------------------------------

EAGLE3 = {"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3}
DRAFT = {"method": "draft_model", "model": "a/b", "num_speculative_tokens": 3}


def test_the_checkpoint_is_asked_for_by_name_and_revision() -> None:
    asked = []

    def read(model: str, revision: str | None) -> dict[str, Any]:
        asked.append((model, revision))
        return {}

    legal({**DRAFT, "revision": "v2"}, read_checkpoint=read)
    resolve(NGRAM, read_checkpoint=read)
    assert asked == [("a/b", "v2")]


def test_vocabularies_must_be_of_one_size() -> None:
    legal(DRAFT, **reads(vocab_size=1000))
    message = refused(DRAFT, **reads(vocab_size=1200))
    assert message.startswith("Target and draft model should have the same vocabulary size.")
    assert "1000 ids" in message
    assert "1200" in message
    legal({**DRAFT, "use_heterogeneous_vocab": True}, **reads(vocab_size=1200))
    legal(EAGLE3, **reads(vocab_size=1200))


def test_two_vocabularies_work_with_every_draft_sampling() -> None:
    legal({**DRAFT, "use_heterogeneous_vocab": True, "draft_sample_method": "probabilistic"})


@pytest.mark.parametrize(
    ("raw", "checkpoint", "message"),
    [
        ({**DRAFT, "max_model_len": 512}, {"max_position_embeddings": 512}, None),
        ({**DRAFT, "max_model_len": 513}, {"max_position_embeddings": 512}, "more than the draft's 512"),
        ({**DRAFT, "max_model_len": 2049}, {"max_position_embeddings": 4096}, "more than the target's 2048"),
        ({**EAGLE3, "max_model_len": 1000}, {"max_position_embeddings": 512}, None),
    ],
)
def test_the_drafters_context_is_bounded_by_both(raw: Any, checkpoint: Any, message: str | None) -> None:
    if message is None:
        legal(raw, **reads(**checkpoint))
    else:
        assert message in refused(raw, **reads(**checkpoint))


@pytest.mark.parametrize(
    "depths", ["n_predict", "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"]
)
def test_mtp_runs_its_layers_a_whole_number_of_times(depths: str, caplog: pytest.LogCaptureFixture) -> None:
    target = replace(TARGET, hf_config={depths: 2})
    for k in (1, 2, 4):
        unbuilt({"method": "mtp", "num_speculative_tokens": k}, target)
    assert "num_speculative_tokens=4 runs 2 MTP layers more than once" in caplog.text
    message = refused({"method": "mtp", "num_speculative_tokens": 3}, target)
    assert message == "num_speculative_tokens:3 must be divisible by n_predict=2."


@pytest.mark.parametrize(
    ("raw", "checkpoint"),
    [
        ({"method": "mtp", "model": "a/b"}, {"num_nextn_predict_layers": 1}),
        ({"method": "eagle", "model": "a/b"}, {"n_predict": 2}),
        ({"method": "dspark", "model": "a/b"}, {"block_size": 7}),
        ({"method": "dspark", "model": "a/b"}, {"dspark_block_size": 7}),
    ],
)
def test_the_checkpoint_says_the_number_of_tokens(raw: dict[str, Any], checkpoint: dict[str, Any]) -> None:
    assert "is not built yet" in unbuilt(raw, **reads(**checkpoint))
    assert "num_speculative_tokens was not" in refused(raw, **reads())


def test_dspark_candidates_are_at_most_the_drafts_vocabulary() -> None:
    raw = {"method": "dspark", "model": "a/b", "num_speculative_tokens": 3, "dspark_draft_topk": 50}
    unbuilt(raw, **reads(draft_vocab_size=50))
    assert "more than the draft's 40 ids" in refused(raw, **reads(draft_vocab_size=40))


@pytest.mark.parametrize(
    ("method", "checkpoint", "evidence"),
    [
        (
            "draft_model",
            {"architectures": ["Qwen3DSparkModel"]},
            "architecture Qwen3DSparkModel is for 'dspark'",
        ),
        ("eagle3", {"speculators_model_type": "dflash"}, "speculators_model_type dflash is for 'dflash'"),
        ("eagle", {"model_type": "mimo_mtp"}, "model_type mimo_mtp is for 'mtp'"),
    ],
)
def test_a_checkpoint_for_another_method_is_refused_naming_both(
    method: str, checkpoint: Any, evidence: str
) -> None:
    message = refused({"method": method, "model": "a/b", "num_speculative_tokens": 3}, **reads(**checkpoint))
    assert message.startswith(f"method {method!r} does not fit a/b: its {evidence};")


def test_an_explicit_method_wins_over_a_name() -> None:
    raw = {"method": "draft_model", "model": "org/eagle3-like", "num_speculative_tokens": 3}
    assert resolve(raw).method == "draft_model"


def test_a_draft_of_a_removed_kind_says_so() -> None:
    raw = {"model": "a/b", "num_speculative_tokens": 3}
    assert "medusa, and that method was removed" in refused(raw, **reads(model_type="medusa"))
