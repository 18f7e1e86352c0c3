"""How tokens are guessed. Drafters are found by name and imported only when one is wanted.

A drafter's module has a frozen dataclass `Options` and `build(options, target) -> Drafter`. Packages of
others offer theirs through the entry-point group "specserve.drafters", as name = "module:build".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from specserve.config.options import nearest
from specserve.draft.base import Drafter, NoDraft
from specserve.draft.config_methods import METHODS, known_methods, named
from specserve.errors import ConfigError, NotBuiltYet

if TYPE_CHECKING:
    from specserve.config.speculative import SpeculativeConfig
    from specserve.draft.config import TargetInfo

logger = logging.getLogger(__name__)

DRAFTERS: Mapping[str, str | None] = {method.name: method.build for method in METHODS}


def load_drafter(config: SpeculativeConfig | None, target: TargetInfo) -> Drafter:
    """The drafter of a resolved configuration; without one, the drafter that never guesses.

    Raises `NotBuiltYet` for an announced method and `ConfigError` for keys its `Options` do not have.
    """
    if config is None:
        return NoDraft()
    method = named(config.method, known_methods())
    if method.build is None:
        raise NotBuiltYet(f"method {method.name!r}", "method")
    path, _, function = method.build.partition(":")
    module = import_module(path)
    options = _options(module.Options, config)
    return cast(Drafter, getattr(module, function)(options, target))


def _options(kind: type[Any], config: SpeculativeConfig) -> Any:
    """Fill a drafter's `Options` by field name, from the common keys and from the drafter's own."""
    names = [f.name for f in fields(kind)]
    if config.draft_sample_method != "greedy" and "draft_sample_method" not in names:
        logger.warning(
            "draft_sample_method=%s has no effect: %s has no such option.",
            config.draft_sample_method,
            config.method,
        )
    for key in config.extra:
        if key not in names:
            message = f"speculative_config has the key {key!r}, which {config.method!r} does not know"
            raise ConfigError(f"{message}; {nearest(key, names)}", key)
    common = {name: getattr(config, name) for name in names if hasattr(config, name)}
    given = {name: value for name, value in common.items() if value is not None}
    return kind(**given, **config.extra)
