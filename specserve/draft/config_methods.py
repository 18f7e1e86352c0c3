"""The methods there are, as data. A new drafter is one row here.

`build` names "module:function" of a drafter that is built; a method without it is announced (it parses, and
then answers "not built yet"), unless other keys name the drafter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Literal

from specserve.config.options import or_nearest
from specserve.errors import ConfigError

GROUP = "specserve.drafters"


@dataclass(frozen=True, slots=True)
class Method:
    """`model` says what stands for a `model` that is not given: nothing may (required), the method needs
    none, or the target itself holds the drafter. "class": it is the path of the drafter, and required;
    "members": there is none, but `drafters`.

    `samples`: the drafter has probabilities and may draw from them. `can_run_async`: vLLM schedules it
    asynchronously. `uses_target`: it reads the target's rows. One that never `guesses` wants nothing but to
    follow the texts. `keys` belong to it alone; those that are `announced` are not built yet.
    """

    name: str
    build: str | None = None
    model: Literal["required", "none", "target", "class", "members"] = "none"
    samples: bool = False
    can_run_async: bool = False
    uses_target: bool = False
    guesses: bool = True
    keys: tuple[str, ...] = ()
    announced: tuple[str, ...] = ()

    @property
    def is_built(self) -> bool:
        return self.build is not None or self.model in ("class", "members")

    @property
    def has_checkpoint(self) -> bool:
        return self.model in ("required", "target", "class")


PREDICTION = "prediction"  # a request's own, which every configuration takes
CHAIN = "chain"
HEAD = ("draft_lm_head_quantization",)
LOOKUP = ("prompt_lookup_max", "prompt_lookup_min", "prompt_lookup_match")
SUFFIX = tuple(
    f"suffix_decoding_{name}"
    for name in (
        "max_tree_depth",
        "max_cached_requests",
        "max_spec_factor",
        "min_token_prob",
        "cache",
        "max_memory",
        "store",
    )
)
# Of the draft's checkpoint: they go to the one drafter that has one.
CHECKPOINT = (
    "model",
    "revision",
    "code_revision",
    "quantization",
    "draft_load_config",
    "kv_cache_dtype",
    "max_model_len",
    "draft_tensor_parallel_size",
)

METHODS = (
    Method("ngram", build="specserve.draft.ngram:build", keys=LOOKUP),
    Method("ngram_gpu", build="specserve.draft.ngram:build", can_run_async=True, keys=LOOKUP),
    Method("suffix", build="specserve.draft.suffix:build", keys=SUFFIX),
    Method(
        "draft_model",
        build="specserve.draft.draft_model:build",
        model="required",
        samples=True,
        can_run_async=True,
        keys=("use_heterogeneous_vocab", "parallel_drafting"),
        announced=("use_heterogeneous_vocab", "parallel_drafting"),
    ),
    Method("eagle", model="required", samples=True, can_run_async=True, uses_target=True, keys=HEAD),
    Method(
        "eagle3",
        model="required",
        samples=True,
        can_run_async=True,
        uses_target=True,
        keys=(*HEAD, "parallel_drafting"),
    ),
    Method(
        "mtp",
        model="target",
        samples=True,
        can_run_async=True,
        uses_target=True,
        keys=(*HEAD, "index_share_for_mtp_iteration"),
    ),
    Method("dflash", model="required", samples=True, can_run_async=True, uses_target=True),
    Method(
        "dspark",
        model="target",
        samples=True,
        can_run_async=True,
        uses_target=True,
        keys=("dspark_draft_topk",),
    ),
    Method("custom_class", model="class", samples=True),
    Method(PREDICTION, build="specserve.draft.prediction:build"),
    Method(CHAIN, model="members", samples=True, keys=("drafters",)),
    Method(
        "extract_hidden_states",
        build="specserve.draft.extract_hidden_states:build",
        uses_target=True,
        guesses=False,
        keys=(
            "draft_model_config",
            "shared_storage_path",
            "include_output_tokens",
            "hidden_states_dtype",
            "hidden_states_max_bytes",
        ),
    ),
)
ALIASES = {"[ngram]": "ngram"}
SAME_DRAFTER = {"ngram_gpu": "ngram"}  # one drafter under two names
ALWAYS_PARALLEL = ("dflash", "dspark")
REMOVED = ("medusa", "mlp_speculator")
MTP_FAMILIES = """
    deepseek dots3_note mimo mimo_v2 glm4_moe glm4_moe_lite glm_ocr ernie nemotron_h exaone_moe exaone4_5
    qwen3_next qwen4_exp qwen3_5 longcat_flash bailing_hybrid_v3 minimax_m3 bailing_hybrid kimi_k3
    pangu_ultra_moe step3p5 hy_v3 hy_v4 gemma4 inkling glm5_next
"""
MTP_NAMES = frozenset(f"{family}_mtp" for family in MTP_FAMILIES.split())


def known_methods() -> dict[str, Method]:
    """Ours and those other packages offer; ours win. Imports none of them, so whether one of theirs has
    probabilities to draw from is told when it is loaded, as it is of a class named by its path."""
    outside = {entry.name: Method(entry.name, build=entry.value, samples=True) for entry in _outside()}
    return {**outside, **{method.name: method for method in METHODS}}


def named(name: str, methods: Mapping[str, Method]) -> Method:
    """Raises `ConfigError` for a removed or an unknown name."""
    if name in methods:
        return methods[name]
    if name in REMOVED:
        raise ConfigError(f"method {name!r} was removed; there are {', '.join(methods)}.", "method")
    raise ConfigError(
        f"method must be one of {', '.join(methods)}, got {name!r}{or_nearest(name, methods)}", "method"
    )


def is_outside(method: Method) -> bool:
    return method not in METHODS


def has_own_keys(method: Method) -> bool:
    """Keys of `speculative_config` that we do not know may be its drafter's."""
    return is_outside(method) or method.model == "class"


def _outside() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))
