"""Fields with options: conversion, bounds, choices, announced values, unknown names."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import pytest

from specserve.config.kinds import INTEGER, MAPPING, SWITCH, TEXT, TEXTS
from specserve.config.options import (
    accept,
    default_text,
    from_mapping,
    nearest,
    option,
    options_of,
    or_nearest,
    settle,
)
from specserve.errors import ConfigError, NotBuiltYet


@dataclass(frozen=True)
class Small:
    needed: int = option(MISSING, INTEGER, "needed")
    rows: int | None = option(None, INTEGER, "rows", low=1, high=8)
    policy: str = option("fcfs", TEXT, "order", choices=("fcfs", "priority"), announced=("fair",))
    weights: str | None = option(None, TEXT, "class", announced=("int8",), like="none at all")
    later: bool = option(False, SWITCH, "announced", is_built=False)
    keys: tuple[str, ...] = option((), TEXTS, "keys", secret=True)
    plain: int = 0

    def __post_init__(self) -> None:
        settle(self)


def test_values_are_converted_once() -> None:
    small = from_mapping(Small, {"needed": "3", "rows": "8", "keys": ["a"]})
    assert (small.needed, small.rows, small.policy, small.keys) == (3, 8, "fcfs", ("a",))


def test_none_stands_for_the_default_where_there_is_one() -> None:
    assert from_mapping(Small, {"needed": 1, "policy": None}).policy == "fcfs"
    with pytest.raises(ConfigError, match=r"needed must be an integer, got None\."):
        from_mapping(Small, {"needed": None})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows must be an integer, at least 1, at most 8, got 0."),
        ({"rows": 9}, "rows must be an integer, at least 1, at most 8, got 9."),
        ({"rows": "x"}, "rows must be an integer, at least 1, at most 8, got 'x'."),
        (
            {"policy": "priorty"},
            "policy must be one of fcfs, priority, fair, got 'priorty'; the nearest known name is "
            "'priority'.",
        ),
        ({"weights": "int2"}, "weights must be one of int8, got 'int2'."),
        ({"row": 1}, "Unknown option 'row'; the nearest known name is 'rows'."),
        ({"plain": 1}, "Unknown option 'plain'; known: needed, rows, policy, weights, later, keys."),
        ({"policy": "newest"}, "policy must be one of fcfs, priority, fair, got 'newest'."),
    ],
)
def test_an_error_names_key_value_and_remedy(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(Small, {"needed": 1, **options})
    assert str(caught.value) == message
    assert caught.value.param == next(iter(options))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"later": True}, "later"),
        ({"policy": "fair"}, "policy 'fair'"),
        ({"weights": "int8"}, "weights 'int8'"),
    ],
)
def test_what_is_announced_names_itself(options: dict[str, Any], name: str) -> None:
    with pytest.raises(NotBuiltYet, match=f"^{name} is not built yet.$"):
        from_mapping(Small, {"needed": 1, **options})


def test_the_default_of_an_announced_option_is_fine() -> None:
    assert from_mapping(Small, {"needed": 1, "later": "false"}).later is False


def test_more_brackets_than_the_parser_takes_are_no_json() -> None:
    described = options_of(Small)["needed"]
    with pytest.raises(ConfigError, match="needed must be a JSON object, got"):
        accept("needed", replace(described, kind=MAPPING), "[" * 5000, MISSING)


def test_a_secret_is_not_in_the_repr() -> None:
    assert "hidden" not in repr(from_mapping(Small, {"needed": 1, "keys": ["hidden"]}))


def test_only_described_fields_are_options() -> None:
    assert list(options_of(Small)) == ["needed", "rows", "policy", "weights", "later", "keys"]


def test_defaults_are_explained() -> None:
    texts = {f.name: default_text(f) for f in fields(Small) if "option" in f.metadata}
    assert texts == {
        "needed": "none",
        "rows": "none",
        "policy": "fcfs",
        "weights": "none at all",
        "later": "false",
        "keys": "none",
    }


@pytest.mark.parametrize(
    ("name", "near"),
    [("prot", "port"), ("--PORT", "--port"), ("hots", "host"), ("Max-Seqs", "max-num-seqs")],
)
def test_one_slip_in_four_letters_is_near(name: str, near: str) -> None:
    assert nearest(name, ["--api-key", near]) == f"the nearest known name is {near!r}."
    assert or_nearest(name, ["--api-key", near]) == f"; the nearest known name is {near!r}."


@pytest.mark.parametrize("name", ["zzz", "--k", "pear", "temperature", ""])
def test_a_far_name_is_not_guessed_but_told_the_known_ones(name: str) -> None:
    known = ["port", "host", "--api-key"]
    assert nearest(name, known) == "known: port, host, --api-key."
    assert or_nearest(name, known) == "."


def test_many_names_are_not_listed_but_where_they_are() -> None:
    many = [str(number) for number in range(13)]
    assert nearest("zzz", many) == "docs/options.md lists the known ones."
    assert nearest("zzz", many, "specserve serve --help") == "specserve serve --help lists the known ones."
    assert nearest("zzz", []) == "there are none."
