"""Dotted access into JSON options."""

from __future__ import annotations

from typing import Any

import pytest

from specserve.config.dotted import apply_dotted, split_dotted
from specserve.config.engine import EngineConfig
from specserve.config.options import options_of
from specserve.errors import ConfigError

OPTIONS = options_of(EngineConfig)
SC = "--speculative-config"


def applied(arguments: list[str], values: dict[str, Any] | None = None) -> Any:
    plain, dotted = split_dotted(arguments, OPTIONS)
    assert plain == []
    return apply_dotted(values or {}, dotted)["speculative_config"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([f"{SC}.method", "ngram"], {"method": "ngram"}),
        ([f"{SC}.method=ngram"], {"method": "ngram"}),
        (["-sc.method", "ngram"], {"method": "ngram"}),
        ([f"{SC}.k", "4", f"{SC}.p", "0.5", f"{SC}.on", "true"], {"k": 4, "p": 0.5, "on": True}),
        ([f"{SC}.k", "-1"], {"k": -1}),
        ([f"{SC}.none", "null"], {"none": None}),
        ([f"{SC}.text", "a=b"], {"text": "a=b"}),
        ([f"{SC}.text=a=b"], {"text": "a=b"}),
        ([f"{SC}.a.b.c", "1", f"{SC}.a.b.d", "2"], {"a": {"b": {"c": 1, "d": 2}}}),
        ([f"{SC}.list+", "[1, 4, 3]", f"{SC}.list+=[5, 9, 0]"], {"list": [[1, 4, 3], [5, 9, 0]]}),
        ([f"{SC}.list", "[1]", f"{SC}.list+", "x"], {"list": [1, "x"]}),
        ([f"{SC}.k", "1", f"{SC}.k", "2"], {"k": 2}),
        ([f"{SC}.k", "[" * 5000], {"k": "[" * 5000}),
        ([f"{SC}.num-speculative-tokens", "2"], {"num-speculative-tokens": 2}),
    ],
)
def test_values_are_typed_and_nested(arguments: list[str], expected: dict[str, Any]) -> None:
    assert applied(arguments) == expected


def test_dotted_values_join_what_is_there_and_leave_it_unchanged() -> None:
    there = {"speculative_config": {"a": {"b": 1}}}
    assert applied([f"{SC}.a.c", "2"], there) == {"a": {"b": 1, "c": 2}}
    assert there == {"speculative_config": {"a": {"b": 1}}}
    assert applied([f"{SC}.a", "2"], {"speculative_config": '{"b": 1}'}) == {"b": 1, "a": 2}


def test_other_arguments_are_left_alone() -> None:
    arguments = ["--temperature", "-0.5", "-1.5", "a.b", "--port=1.5", "--chat-template", "x.jinja"]
    assert split_dotted(arguments, OPTIONS) == (arguments, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([f"{SC}.method"], f"{SC}.method needs a value."),
        ([f"{SC}.method", "--port"], f"{SC}.method needs a value."),
        ([f"{SC}.a..b", "1"], "has an empty part"),
        (["--device.x", "1"], "--device is no JSON object"),
        (["--speculativ-config.x", "1"], "the nearest known name is '--speculative-config'"),
        ([f"{SC}.a", "1", f"{SC}.a.b", "1"], "speculative_config.a.b leads into 1, which is no object"),
        ([f"{SC}.a", "1", f"{SC}.a+", "1"], "speculative_config.a+ appends to a list, but there is 1"),
    ],
)
def test_a_mistake_names_the_path(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        applied(arguments)
    assert message in str(caught.value)


def test_a_broken_object_below_is_named() -> None:
    with pytest.raises(ConfigError, match=r"speculative_config must be a JSON object, got '{broken'"):
        applied([f"{SC}.a", "1"], {"speculative_config": "{broken"})
