"""Which method, and which checkpoint holds the drafter: from the keys, the target, and the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specserve.draft.config_checkpoint import detect
from specserve.draft.config_keys import Given
from specserve.draft.config_methods import Method, is_outside, named
from specserve.draft.config_target import TargetInfo
from specserve.errors import ConfigError, NotBuiltYet


@dataclass(frozen=True, slots=True)
class Drafting:
    """`checkpoint` is the config.json of what holds the drafter, {} where it is unknown or there is none."""

    method: Method
    model: str
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    quantization: str | None = None
    is_parallel: bool = False


def decide_model(
    given: Given,
    target: TargetInfo,
    methods: Mapping[str, Method],
    read_checkpoint: Callable[[str, str | None], Mapping[str, Any]] | None,
) -> Drafting:
    """Raises `ConfigError` when a model is missing, or certainly made for another method; `NotBuiltYet` when
    it is missing for a method that could not use it."""
    name, model = given.get("method"), given.get("model")
    if name is None and model is None:
        if "num_speculative_tokens" in given:
            raise _without_model()
        raise ConfigError(f"speculative_config needs a method: {', '.join(methods)}.", "method")
    method = named(name or "draft_model", methods)
    if model is None:
        return _implied(method, given, target)
    if method.model == "class" and model in methods and is_outside(methods[model]):
        return Drafting(methods[model], model)
    if method.model == "members":
        message = f"method {method.name!r} takes no model, each of its drafters has its own; got {model!r}."
        raise ConfigError(message, "model")
    if method.model in ("none", "class"):
        return Drafting(method, model)
    checkpoint = dict(read_checkpoint(model, given.get("revision"))) if read_checkpoint else {}
    return _detected(name, model, checkpoint, methods)


def without_num_tokens(method: Method) -> ConfigError:
    given = "A speculative model" if method.has_checkpoint else f"Method {method.name!r}"
    return ConfigError(
        f"{given} was provided but num_speculative_tokens was not; say how many tokens to guess.",
        "num_speculative_tokens",
    )


def _implied(method: Method, given: Given, target: TargetInfo) -> Drafting:
    """The model of a method that is given without one."""
    if method.model == "class":
        raise ConfigError(
            f"method {method.name!r} needs a class path in model: package.module.Class.", "model"
        )
    if method.model in ("none", "members"):
        return Drafting(method, method.name)
    has_number = "num_speculative_tokens" in given
    if not method.is_built and (method.model == "required" or not has_number):
        raise NotBuiltYet(f"method {method.name!r}", "method")  # what is missing would be of no use
    if method.model == "required":
        if has_number:
            raise _without_model()
        raise ConfigError(f"method {method.name!r} needs a draft checkpoint in model.", "model")
    if not has_number:
        raise without_num_tokens(method)
    return Drafting(method, target.model, target.hf_config, quantization=target.quantization)


def _detected(
    name: str | None, model: str, checkpoint: Mapping[str, Any], methods: Mapping[str, Method]
) -> Drafting:
    """An explicit method wins; a checkpoint that is certainly for another one is an error naming both."""
    detected = detect(model, checkpoint)
    method = named(name or (detected.method if detected else "draft_model"), methods)
    if detected is None or not detected.is_certain:
        return Drafting(method, model, checkpoint)
    if method.name != detected.method:
        raise ConfigError(
            f"method {method.name!r} does not fit {model}: its {detected.evidence} is for "
            f"{detected.method!r}; change one of them, or leave the method out.",
            "method",
        )
    return Drafting(method, model, checkpoint, is_parallel=detected.is_parallel)


def _without_model() -> ConfigError:
    return ConfigError(
        "num_speculative_tokens was provided but without speculative model. Name a draft checkpoint in "
        "model, or a method that needs none.",
        "model",
    )
