"""Dotted access into JSON options: `--option.path value`, and `--option.path+ item` for lists."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specserve.config.kinds import MAPPING
from specserve.config.options import Option, flag, nearest
from specserve.errors import ConfigError

FORM = re.compile(r"(--?[A-Za-z][A-Za-z0-9-]*)\.([^=]+)(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Dotted:
    """`value` goes to `path` within the option, or onto the end of the list there."""

    option: str
    path: tuple[str, ...]
    value: Any
    appends: bool


def split_dotted(arguments: Sequence[str], options: Mapping[str, Option]) -> tuple[list[str], list[Dotted]]:
    """The other arguments, and the dotted ones in their order. Raises `ConfigError`."""
    plain: list[str] = []
    dotted: list[Dotted] = []
    rest = iter(arguments)
    for argument in rest:
        match = FORM.fullmatch(argument)
        if match is None:
            plain.append(argument)
            continue
        base, path, text = match.groups()
        option = _json_option(base, options)
        if text is None:
            text = next(rest, None)
        if text is None or text.startswith("--"):
            raise ConfigError(f"{base}.{path} needs a value.", option)
        appends = path.endswith("+")
        steps = tuple(path.removesuffix("+").split("."))
        if not all(steps):
            raise ConfigError(f"{base}.{path} has an empty part.", option)
        dotted.append(Dotted(option, steps, _typed(text), appends))
    return plain, dotted


def apply_dotted(values: Mapping[str, Any], dotted: Sequence[Dotted]) -> dict[str, Any]:
    """`values` with every dotted value at its place. Raises `ConfigError` where there is no place."""
    changed = dict(values)
    for item in dotted:
        base = changed.get(item.option)
        try:
            changed[item.option] = _placed({} if base is None else MAPPING.convert(base), item.path, item)
        except ValueError as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{item.option} must be {MAPPING.name}, got {base!r}.", item.option) from None
    return changed


def _placed(inside: Any, path: tuple[str, ...], item: Dotted) -> Any:
    """A copy of `inside` with the item at `path`."""
    where = ".".join([item.option, *item.path])
    if not path:
        if not item.appends:
            return item.value
        if not isinstance(inside, list | None):
            raise ConfigError(f"{where}+ appends to a list, but there is {inside!r}.", item.option)
        return [*(inside or []), item.value]
    if not isinstance(inside, Mapping | None):
        raise ConfigError(f"{where} leads into {inside!r}, which is no object.", item.option)
    entries = dict(inside or {})
    return {**entries, path[0]: _placed(entries.get(path[0]), path[1:], item)}


def _json_option(base: str, options: Mapping[str, Option]) -> str:
    for name, option in options.items():
        if base in (flag(name), option.short):
            if option.kind is MAPPING:
                return name
            raise ConfigError(f"{base} is no JSON object, so nothing lies below it.", name)
    known = [flag(name) for name, option in options.items() if option.kind is MAPPING]
    raise ConfigError(f"Unknown flag {base}; {nearest(base, known)}", base)


def _typed(text: str) -> Any:
    """JSON where it is some, else the text itself: 4, true, [1, 2], ngram."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
