"""Options as data: each field of a configuration carries what it accepts and how it is explained.

Flags (`flags`), the page docs/options.md (`table`) and the checks (`settle`) all come from these fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from specserve.config.kinds import Kind
from specserve.errors import ConfigError, NotBuiltYet

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")

NEAR = 0.7  # difflib's ratio: one slip in four letters is near
FEW = 12  # names that a message lists


@dataclass(frozen=True, slots=True)
class Option:
    """What one field accepts.

    `low` and `high` are inclusive. `choices` are the values it takes, `announced` those it will take one
    day. An option that is not built takes its default only. `short` is a second flag; `like` completes the
    default in help texts when the real one is decided later.
    """

    kind: Kind
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    announced: tuple[str, ...] = ()
    is_built: bool = True
    short: str | None = None
    positional: bool = False
    like: str | None = None


def option(
    default: Any,
    kind: Kind,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    announced: tuple[str, ...] = (),
    is_built: bool = True,
    short: str | None = None,
    positional: bool = False,
    like: str | None = None,
    secret: bool = False,
) -> Any:
    """A dataclass field with its `Option`; MISSING: it is required; secret: it is not in the repr."""
    described = Option(kind, help, low, high, choices, announced, is_built, short, positional, like)
    return field(default=default, repr=not secret, metadata={"option": described})


def options_of(config: type[DataclassInstance]) -> dict[str, Option]:
    return {f.name: f.metadata["option"] for f in fields(config) if "option" in f.metadata}


def settle(config: DataclassInstance) -> None:
    """Convert and check every field of a frozen configuration, once, from its `__post_init__`.

    Raises `ConfigError` naming key, value and what is allowed, or `NotBuiltYet` naming the option.
    """
    for f in fields(config):
        if "option" in f.metadata:
            value = accept(f.name, f.metadata["option"], getattr(config, f.name), f.default)
            object.__setattr__(config, f.name, value)


def from_mapping(config: type[Config], options: Mapping[str, Any]) -> Config:
    """Build `config` from untyped options; an unknown key is an error that names a near one."""
    known = [f.name for f in fields(config) if "option" in f.metadata]
    for name in options:
        if name not in known:
            raise ConfigError(f"Unknown option {name!r}; {nearest(name, known)}", name)
    return config(**options)


def accept(name: str, option: Option, value: Any, default: Any) -> Any:
    """The value as the option's kind has it; None stands for the default, where there is one."""
    if default is not MISSING and (value is None or value == default):
        return default
    try:
        value = option.kind.convert(value)
    except (ValueError, RecursionError):  # the latter from JSON of a thousand brackets
        raise _refusal(name, option, value) from None
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_bounds(name, option, value)
    if value in option.announced:
        raise NotBuiltYet(f"{name} {value!r}", name)
    if option.choices + option.announced and value not in option.choices:
        raise _refusal(name, option, value)
    if not option.is_built and value != default:
        raise NotBuiltYet(name, name)
    return value


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def default_text(f: Field[Any]) -> str:
    """A field's default for help texts: what decides when nothing is given."""
    described: Option = f.metadata["option"]
    if described.like is not None:
        return described.like
    if f.default is None or f.default is MISSING or f.default == "":
        return "none"
    if isinstance(f.default, bool):
        return str(f.default).lower()
    if isinstance(f.default, tuple):
        return " ".join(f.default) or "none"
    return str(f.default)


def nearest(name: str, known: Iterable[str], listing: str = "docs/options.md") -> str:
    """End of a message about an unknown name: the known one that it may stand for, else all of them, else
    where they are listed."""
    names = list(known)
    if near := _near(name, names):
        return f"the nearest known name is {near!r}."
    if not names:
        return "there are none."
    return f"known: {', '.join(names)}." if len(names) <= FEW else f"{listing} lists the known ones."


def or_nearest(name: str, known: Iterable[str]) -> str:
    """End of a message that lists what is known itself."""
    near = _near(name, known)
    return f"; the nearest known name is {near!r}." if near else "."


def _near(name: str, known: Iterable[str]) -> str | None:
    """The hyphens that all flags begin with, and capitals, say nothing."""
    plain = {one.lstrip("-").lower(): one for one in known}
    close = get_close_matches(name.lstrip("-").lower(), plain, 1, cutoff=NEAR)
    return plain[close[0]] if close else None


def _check_bounds(name: str, option: Option, value: float) -> None:
    if (option.low is not None and value < option.low) or (option.high is not None and value > option.high):
        raise _refusal(name, option, value)


def _refusal(name: str, option: Option, value: Any) -> ConfigError:
    allowed = option.kind.name
    if option.choices or option.announced:
        allowed = f"one of {', '.join(option.choices + option.announced)}"
    if option.low is not None:
        allowed += f", at least {option.low:g}"
    if option.high is not None:
        allowed += f", at most {option.high:g}"
    end = "."
    if option.choices and isinstance(value, str):
        end = or_nearest(value, option.choices + option.announced)
    return ConfigError(f"{name} must be {allowed}, got {value!r}{end}", name)
