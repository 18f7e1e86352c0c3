"""From a resolved configuration to a drafter: ours, another package's, or a class named by its path.

All three are a module with a dataclass `Options` and something to call in it, `make(options, target) ->
Drafter`; `Options` are filled by field name from `speculative_config`. What was configured is put together
with the requests' own predictions, which need no configuration.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Any, cast

from specserve.config.options import nearest
from specserve.config.speculative import SpeculativeConfig
from specserve.draft.base import Drafter, NoDraft
from specserve.draft.chain import ChainDrafter, Member
from specserve.draft.config_members import of_member
from specserve.draft.config_methods import PREDICTION, is_outside, known_methods, named
from specserve.draft.config_target import TargetInfo
from specserve.errors import ConfigError, NotBuiltYet
from specserve.types import Needs

logger = logging.getLogger(__name__)

VERBS = ("observe", "propose", "synced", "forget")
HELP = "docs/write-a-drafter.md shows one that works"


@dataclass(frozen=True, slots=True)
class Plugin:
    """What makes a drafter, found and its options filled in.

    As a source of guesses, at most `num_tokens` at once, it goes by `source`; in messages by `name`, which
    was given as `key`.
    """

    source: str
    num_tokens: int
    name: str
    key: str
    make: Callable[[Any, TargetInfo], Any]
    options: Any
    is_ours: bool

    def build(self, target: TargetInfo) -> Drafter:
        """Raises `ConfigError` when what others wrote raises, or makes no drafter."""
        if self.is_ours:
            return cast(Drafter, self.make(self.options, target))
        try:
            made = self.make(self.options, target)
        except Exception as error:  # whatever the code of somebody else does
            raise ConfigError(f"{self.name!r} could not be built: {error!r}.", self.key) from error
        missing = [verb for verb in VERBS if not callable(getattr(made, verb, None))]
        needs = getattr(made, "needs", None)
        missing += [] if isinstance(needs, Needs) else ["needs"]
        if isinstance(needs, Needs) and needs.layers and not callable(getattr(made, "bind", None)):
            missing.append("bind, which takes the layers it needs")
        if missing:
            raise ConfigError(
                f"{self.name!r} is no drafter: it lacks {', '.join(missing)}; {HELP}.", self.key
            )
        return cast(Drafter, made)


def load_drafter(config: SpeculativeConfig | None, target: TargetInfo) -> Drafter:
    """The drafter of a resolved configuration; without one, the drafter that never guesses."""
    return assemble(find_plugins(config), target)


def assemble(plugins: Sequence[Plugin], target: TargetInfo) -> Drafter:
    """All of them as one drafter. Raises `ConfigError`."""
    if not plugins:
        return NoDraft()
    return ChainDrafter(Member(one.source, one.build(target), one.num_tokens) for one in plugins)


def find_plugins(config: SpeculativeConfig | None) -> tuple[Plugin, ...]:
    """Import what the configuration names, before any weight is loaded; predictions come first.

    Raises `NotBuiltYet` for an announced method, and `ConfigError` for what cannot be imported or does not
    know a key it is given.
    """
    if config is None:
        return ()
    if config.drafters is None:
        found = [_find(config)]
    else:
        found = [_found_member(number, member) for number, member in enumerate(config.drafters)]
    if PREDICTION not in [one.source for one in found]:
        found.insert(0, _find(replace(config, method=PREDICTION, draft_sample_method="greedy", extra={})))
    return tuple(_numbered(found))


def _found_member(number: int, config: SpeculativeConfig) -> Plugin:
    with of_member(number):
        return _find(config)


def _numbered(plugins: Sequence[Plugin]) -> Iterator[Plugin]:
    """Each source with a name of its own: the second of two of a kind is ngram-2."""
    counts: Counter[str] = Counter()
    for one in plugins:
        counts[one.source] += 1
        number = counts[one.source]
        yield one if number == 1 else replace(one, source=f"{one.source}-{number}")


def _find(config: SpeculativeConfig) -> Plugin:
    method = named(config.method, known_methods())
    is_path = method.model == "class"
    if method.build is None and not is_path:
        raise NotBuiltYet(f"method {method.name!r}", "method")
    name, key = (config.model, "model") if is_path else (method.name, "method")
    place, _, attribute = (
        config.model.rpartition(".") if method.build is None else method.build.partition(":")
    )
    is_ours = not is_path and not is_outside(method)
    module = import_module(place) if is_ours else _imported(place, name, key)
    make = getattr(module, attribute, None)
    if not callable(make):
        what = "no" if make is None else "something else than a class or function as"
        public = [other for other in vars(module) if not other.startswith("_") and other != attribute]
        raise ConfigError(
            f"{name!r}: module {place} has {what} {attribute!r}; {nearest(attribute, public, 'its source')}",
            key,
        )
    options = _options(_kind(module, name, key), config, name)
    return Plugin(method.name, config.num_speculative_tokens, name, key, make, options, is_ours)


def _imported(place: str, name: str, key: str) -> ModuleType:
    try:
        return import_module(place)
    except Exception as error:  # whatever the module of somebody else does when it is imported
        raise ConfigError(f"{name!r} cannot be imported: {error!r}.", key) from error


def _kind(module: ModuleType, name: str, key: str) -> type[Any]:
    kind = getattr(module, "Options", None)
    if not isinstance(kind, type) or not is_dataclass(kind):
        raise ConfigError(f"{name!r}: module {module.__name__} has no dataclass Options; {HELP}.", key)
    return kind


def _options(kind: type[Any], config: SpeculativeConfig, name: str) -> Any:
    """Fill a drafter's `Options` by field name, from the common keys and from the drafter's own."""
    names = [f.name for f in fields(kind)]
    if config.draft_sample_method != "greedy" and "draft_sample_method" not in names:
        logger.warning(
            "draft_sample_method=%s has no effect: %s has no such option.", config.draft_sample_method, name
        )
    for key in config.extra:
        if key not in names:
            message = f"speculative_config has the key {key!r}, which {name!r} does not know"
            raise ConfigError(f"{message}; {nearest(key, names)}", key)
    common = {name: getattr(config, name) for name in names if hasattr(config, name)}
    given = {**{name: value for name, value in common.items() if value is not None}, **config.extra}
    for key in _required(kind):
        if key not in given:
            raise ConfigError(f"{name!r} needs the key {key!r} in speculative_config.", key)
    try:
        return kind(**given)
    except ValueError as error:
        raise ConfigError(f"{name!r} refuses its options: {error}", getattr(error, "param", None)) from error


def _required(kind: type[Any]) -> Iterable[str]:
    return (f.name for f in fields(kind) if f.init and f.default is MISSING and f.default_factory is MISSING)
