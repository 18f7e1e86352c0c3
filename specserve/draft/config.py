"""From `speculative_config` as typed to a complete `SpeculativeConfig`.

Everything that can be known without loading a checkpoint is decided and checked here. Announced methods
are checked in full first and answer "not built yet" last, so a mistake is told before that; a missing model
is none. Whether a rule is built, `verify` knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specserve.config.speculative import DEFAULT_TREE_DEPTH, MAX_SPECULATIVE_TOKENS
from specserve.config.speculative import SpeculativeConfig as SpeculativeConfig
from specserve.draft.config_checkpoint import default_tokens, predicted_tokens
from specserve.draft.config_checks import CHECKS, Case, attention_backend, draft_max_len
from specserve.draft.config_keys import Given, read_keys, warn_without_effect, with_underscores
from specserve.draft.config_members import implied_rule, inherit, members_of, of_member
from specserve.draft.config_methods import ALWAYS_PARALLEL, CHAIN, LOOKUP, SAME_DRAFTER, Method, known_methods
from specserve.draft.config_model import Drafting, decide_model, without_num_tokens
from specserve.draft.config_rules import decide_rules, with_lossy_parameters
from specserve.draft.config_spelled import spelled_out
from specserve.draft.config_table import lookup, read_table
from specserve.draft.config_target import TargetInfo as TargetInfo
from specserve.errors import ConfigError, NotBuiltYet

logger = logging.getLogger(__name__)

ReadCheckpoint = Callable[[str, str | None], Mapping[str, Any]]  # (model, revision) -> its config.json
HEAD_QUANTIZATION = {"fp8": "int8", "nvfp4": "int4"}
DEFAULT_LOOKUP = 5  # tokens


def resolve_speculative(
    raw: Mapping[str, Any] | None,
    target: TargetInfo,
    *,
    max_num_seqs: int,
    data_parallel_size: int = 1,
    async_scheduling: bool | None = None,
    read_checkpoint: ReadCheckpoint | None = None,
) -> SpeculativeConfig | None:
    """Every key decided; None without speculation. `draft_lengths` has `max_num_seqs + 1` entries.

    `read_checkpoint` gives a draft checkpoint's config; without it what only the checkpoint can tell is
    left out. Raises `ConfigError` naming the key, or `NotBuiltYet` naming the method.
    """
    methods = known_methods()
    typed = None if raw is None else spelled_out(with_underscores(raw), methods)
    if typed is None:
        return None
    given, extra = read_keys(typed, methods)
    setting = _Setting(target, methods, async_scheduling, read_checkpoint)
    config = (_chain if given.get("method") == CHAIN else _one)(given, extra, setting)
    return _with_draft_lengths(config, max_num_seqs, data_parallel_size)


@dataclass(frozen=True, slots=True)
class _Setting:
    """What a configuration is resolved for."""

    target: TargetInfo
    methods: Mapping[str, Method]
    async_scheduling: bool | None
    read_checkpoint: ReadCheckpoint | None


def _one(
    given: Given, extra: Mapping[str, Any], setting: _Setting, *, is_member: bool = False
) -> SpeculativeConfig:
    """All but the draft lengths; of a chain's member without the rule's parameters, too."""
    drafting = decide_model(given, setting.target, setting.methods, setting.read_checkpoint)
    method = drafting.method
    case = Case(method, setting.target, drafting.checkpoint, setting.async_scheduling)
    config = _decided(given, extra, drafting)
    config = config if is_member else with_lossy_parameters(config)
    for check in CHECKS:
        check(config, case)
    warn_without_effect(given, method, config.rejection_sample_method)
    config = _with_lookup(_with_inherited(config, case), method)
    _refuse_unbuilt(config, method)
    return replace(config, method=SAME_DRAFTER.get(method.name, method.name))


def _chain(given: Given, extra: Mapping[str, Any], setting: _Setting) -> SpeculativeConfig:
    """Its members first: it guesses as many tokens as the one that guesses most."""
    listed, methods = members_of(given), setting.methods
    k = given.get("num_speculative_tokens")
    rule, draw = decide_rules(implied_rule(given, listed), given.get("draft_sample_method"), methods[CHAIN])
    members = []
    for number, typed in enumerate(listed):
        with of_member(number):
            own, own_extra = read_keys(spelled_out(typed, methods) or {}, methods)
            name = own.get("method")
            if name == CHAIN:
                raise ConfigError("chains do not nest; list all drafters in one.", "method")
            own = inherit(own, methods.get(name or ""), rule, draw, k)
            members.append(_one(own, own_extra, setting, is_member=True))
    most = max(member.num_speculative_tokens for member in members)
    decided = {"rejection_sample_method": rule, "num_speculative_tokens": k or most}
    return replace(_one({**given, **decided}, extra, setting), drafters=tuple(members))


def _decided(given: Given, extra: Mapping[str, Any], drafting: Drafting) -> SpeculativeConfig:
    """The configuration with the keys that others imply filled in."""
    method = drafting.method
    rule, draw = decide_rules(given.get("rejection_sample_method"), given.get("draft_sample_method"), method)
    decided = {
        "method": method.name,
        "model": drafting.model,
        "num_speculative_tokens": _num_tokens(given, drafting),
        "rejection_sample_method": rule,
        "draft_sample_method": draw,
        "quantization": given.get("quantization", drafting.quantization),
        "parallel_drafting": given.get("parallel_drafting") or drafting.is_parallel,
    }
    return SpeculativeConfig(**{**given, **decided}, extra=extra)


def _num_tokens(given: Given, drafting: Drafting) -> int:
    """k: given, or the checkpoint's, or the suffix tree's depth."""
    name = drafting.method.name
    k: int | None = given.get("num_speculative_tokens")
    if k is not None:
        predicted = predicted_tokens(name, drafting.checkpoint)
        if name == "mtp" and predicted is not None and k > predicted:
            logger.warning("num_speculative_tokens=%d runs %d MTP layers more than once.", k, predicted)
        return k
    k = default_tokens(name, drafting.checkpoint) if drafting.method.guesses else 1
    if name == "suffix":
        depth = given.get("suffix_decoding_max_tree_depth", DEFAULT_TREE_DEPTH)
        k = min(depth, MAX_SPECULATIVE_TOKENS)
        logger.warning("num_speculative_tokens was not given; taking suffix_decoding_max_tree_depth=%d.", k)
    if k is None:
        raise without_num_tokens(drafting.method)
    return k


def _with_inherited(config: SpeculativeConfig, case: Case) -> SpeculativeConfig:
    """What the target decides where the key does not."""
    target, head = case.target, config.draft_lm_head_quantization
    if head in HEAD_QUANTIZATION:
        logger.info("draft_lm_head_quantization %s is taken as %s.", head, HEAD_QUANTIZATION[head])
        head = HEAD_QUANTIZATION[head]
    return replace(
        config,
        draft_lm_head_quantization=head,
        draft_tensor_parallel_size=config.draft_tensor_parallel_size or target.tensor_parallel_size,
        max_model_len=config.max_model_len or min(draft_max_len(case), target.max_model_len),
        kv_cache_dtype=config.kv_cache_dtype or target.kv_cache_dtype,
        moe_backend=config.moe_backend or target.moe_backend,
        attention_backend=attention_backend(config.attention_backend),
        parallel_drafting=config.parallel_drafting or case.method.name in ALWAYS_PARALLEL,
    )


def _with_lookup(config: SpeculativeConfig, method: Method) -> SpeculativeConfig:
    """Both bounds for a method that looks up, one given bound standing for both; none for others."""
    if not set(LOOKUP) <= set(method.keys):
        return replace(config, prompt_lookup_min=None, prompt_lookup_max=None)
    low = config.prompt_lookup_min or config.prompt_lookup_max or DEFAULT_LOOKUP
    high = config.prompt_lookup_max or low
    if low > high:
        raise ConfigError(
            f"prompt_lookup_min={low} must not be larger than prompt_lookup_max={high}.", "prompt_lookup_min"
        )
    return replace(config, prompt_lookup_min=low, prompt_lookup_max=high)


def _with_draft_lengths(
    config: SpeculativeConfig, max_num_seqs: int, data_parallel_size: int
) -> SpeculativeConfig:
    table = config.num_speculative_tokens_per_batch_size
    if table is not None:
        table = read_table(table)
    if table is not None and data_parallel_size > 1:
        logger.warning("num_speculative_tokens_per_batch_size is off with data_parallel_size > 1.")
        table = None
    lengths = lookup(table, config.num_speculative_tokens, max_num_seqs)
    return replace(config, num_speculative_tokens_per_batch_size=table, draft_lengths=lengths)


def _refuse_unbuilt(config: SpeculativeConfig, method: Method) -> None:
    if not method.is_built:
        raise NotBuiltYet(f"method {method.name!r}", "method")
    for key in method.announced:
        if getattr(config, key):
            raise NotBuiltYet(f"{key} of method {method.name!r}", key)
    if config.enable_adaptive_verification:
        raise NotBuiltYet("enable_adaptive_verification", "enable_adaptive_verification")
