"""Kinds of option values. A kind reads a value from text (a flag) or takes a typed one (YAML, Python).

A `convert` raises `ValueError` when the value is none of its kind; who calls it names the key.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

SUFFIXES = {  # lower case counts in thousands, upper case in 1024s, as vLLM has it
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
}
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Kind:
    """`name` completes "must be …"; `metavar` stands for the value in help texts."""

    name: str
    metavar: str
    convert: Callable[[Any], Any]
    takes_many: bool = False


def _integer(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError


def _bits(value: Any) -> int:
    number = _integer(value)
    if number not in (8, 16):
        raise ValueError
    return number


def _count(value: Any) -> int:
    if not isinstance(value, str):
        return _integer(value)
    match = re.fullmatch(r"\s*([+-]?\d+)(\.\d+)?\s*([kKmMgG]?)\s*", value)
    if match is None or (match[2] and not match[3].islower()):  # 1.5K would be no whole number of 1024s
        raise ValueError
    exact = (
        float(match[1] + match[2]) * SUFFIXES[match[3]] if match[2] else int(match[1]) * SUFFIXES[match[3]]
    )
    return round(exact)


def _counts(value: Any) -> tuple[int, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items:
        raise ValueError
    counts = tuple(_integer(item) for item in items)
    if min(counts) < 1:
        raise ValueError
    return counts


def _length(value: Any) -> int | Literal["auto"]:
    if isinstance(value, str) and value.strip().lower() == "auto":
        return "auto"
    count = _count(value)
    return "auto" if count == -1 else count


def _level(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    number = float(value)
    if math.isnan(number):
        raise ValueError
    return number


def _number(value: Any) -> float:
    number = _level(value)
    if math.isinf(number):
        raise ValueError
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        raise ValueError
    return tuple(_text(item) for item in value)


def _switch(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in TRUE + FALSE:
        return value.lower() in TRUE
    if isinstance(value, bool):
        return value
    raise ValueError


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError
    return dict(value)


def _strings(value: Any) -> tuple[str, ...]:
    """A list of strings that may also come as JSON, as vLLM takes `--allowed-origins`."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = json.loads(value)
    if isinstance(value, list | tuple) and len(value) == 1:
        value = _strings(value[0])
    return _texts(value)


def _items(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, list | tuple):
        raise ValueError
    return tuple(value)


INTEGER = Kind("an integer", "N", _integer)
BITS = Kind("8 or 16", "8|16", _bits)
COUNT = Kind("an integer (k, m, g for thousands, K, M, G for 1024s)", "N", _count)
COUNTS = Kind("a list of integers from 1 up, as 1,2,4", "N,N,…", _counts)
LENGTH = Kind('an integer (4k = 4000, 4K = 4096) or "auto"', "N|auto", _length)
NUMBER = Kind("a finite number", "X", _number)
LEVEL = Kind("a number, infinity allowed", "X", _level)
TEXT = Kind("a non-empty string", "TEXT", _text)
TEXTS = Kind("a list of non-empty strings", "TEXT", _texts, takes_many=True)
STRINGS = Kind("a list of non-empty strings", "TEXT", _strings, takes_many=True)
SWITCH = Kind("true or false", "BOOL", _switch)
MAPPING = Kind("a JSON object", "JSON", _mapping)
ITEMS = Kind("a JSON list", "JSON", _items)
