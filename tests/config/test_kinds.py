"""Values of each kind, as text and typed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from specserve.config import kinds
from specserve.config.kinds import Kind


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (kinds.INTEGER, "-3", -3),
        (kinds.INTEGER, 7, 7),
        (kinds.BITS, "16", 16),
        (kinds.COUNT, "4k", 4000),
        (kinds.COUNT, "4K", 4096),
        (kinds.COUNT, "25.6k", 25600),
        (kinds.COUNT, "2G", 2**31),
        (kinds.COUNT, "1g", 10**9),
        (kinds.COUNT, 5, 5),
        (kinds.COUNTS, "1, 2,16", (1, 2, 16)),
        (kinds.COUNTS, "3", (3,)),
        (kinds.COUNTS, [4, 1], (4, 1)),
        (kinds.LENGTH, "auto", "auto"),
        (kinds.LENGTH, "-1", "auto"),
        (kinds.LENGTH, -1, "auto"),
        (kinds.LENGTH, "8K", 8192),
        (kinds.NUMBER, "0.5", 0.5),
        (kinds.NUMBER, 1, 1.0),
        (kinds.LEVEL, math.inf, math.inf),
        (kinds.LEVEL, "Infinity", math.inf),
        (kinds.TEXT, "a", "a"),
        (kinds.TEXTS, "a", ("a",)),
        (kinds.TEXTS, ["a", "b"], ("a", "b")),
        (kinds.STRINGS, '["a", "b"]', ("a", "b")),
        (kinds.STRINGS, ['["a", "b"]'], ("a", "b")),
        (kinds.STRINGS, ["a"], ("a",)),
        (kinds.STRINGS, "[]", ()),
        (kinds.SWITCH, "False", False),
        (kinds.SWITCH, "on", True),
        (kinds.SWITCH, True, True),
        (kinds.MAPPING, '{"a": 1}', {"a": 1}),
        (kinds.MAPPING, {"a": 1}, {"a": 1}),
        (kinds.ITEMS, "[[1, 2, 3]]", ([1, 2, 3],)),
    ],
)
def test_a_value_of_the_kind_is_taken(kind: Kind, value: Any, expected: Any) -> None:
    converted = kind.convert(value)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (kinds.INTEGER, "4k"),
        (kinds.INTEGER, 1.5),
        (kinds.INTEGER, True),
        (kinds.BITS, 12),
        (kinds.BITS, "eight"),
        (kinds.COUNT, "1.5K"),
        (kinds.COUNT, "1.5"),
        (kinds.COUNT, "k"),
        (kinds.COUNT, None),
        (kinds.COUNTS, ""),
        (kinds.COUNTS, "1,,2"),
        (kinds.COUNTS, "0,1"),
        (kinds.COUNTS, []),
        (kinds.COUNTS, 3),
        (kinds.LENGTH, "long"),
        (kinds.NUMBER, "nan"),
        (kinds.NUMBER, "inf"),
        (kinds.NUMBER, True),
        (kinds.LEVEL, "nan"),
        (kinds.TEXT, ""),
        (kinds.TEXT, 3),
        (kinds.TEXTS, ["a", 3]),
        (kinds.TEXTS, 3),
        (kinds.STRINGS, "[1]"),
        (kinds.STRINGS, "[broken"),
        (kinds.SWITCH, "perhaps"),
        (kinds.SWITCH, 2),
        (kinds.MAPPING, "[1]"),
        (kinds.MAPPING, "{broken"),
        (kinds.MAPPING, {1: 2}),
        (kinds.ITEMS, "{}"),
        (kinds.ITEMS, 3),
    ],
)
def test_another_value_is_refused(kind: Kind, value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # a kind does not know the key, so it has nothing to say
        kind.convert(value)
