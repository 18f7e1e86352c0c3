"""What a request may ask for: a value that cannot be is refused where it stands, by name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from specserve.errors import InvalidRequest
from specserve.sampling_params import SamplingParams, Speculation
from specserve.server.schema import SPECULATION


@pytest.mark.parametrize(
    "value", [{}, {"enabled": None}, {"num_speculative_tokens": 0}, Speculation(method="x")]
)
def test_speculation_is_an_object_of_known_keys(value: object) -> None:
    SamplingParams(speculation=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "param", "words"),
    [
        (
            False,
            "speculation",
            "must be an object with any of the keys enabled, num_speculative_tokens, method",
        ),
        ([], "speculation", r"got \[\]"),
        ({"k": 3}, "speculation.k", "unknown key 'k'; known: enabled, num_speculative_tokens, method"),
        ({"enabled": 1}, "speculation.enabled", "must be true or false, got 1"),
        ({"enabled": "no"}, "speculation.enabled", "got 'no'"),
        ({"num_speculative_tokens": -1}, "speculation.num_speculative_tokens", "at least 0, got -1"),
        ({"num_speculative_tokens": True}, "speculation.num_speculative_tokens", "got True"),
        ({"num_speculative_tokens": 2.0}, "speculation.num_speculative_tokens", "got 2.0"),
        ({"method": ""}, "speculation.method", "the name of a drafter, got ''"),
        ({"method": ["ngram"]}, "speculation.method", "got .'ngram'."),
    ],
)
def test_speculation_that_cannot_be_is_refused_by_key(value: object, param: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        SamplingParams(speculation=value)  # type: ignore[arg-type]
    assert caught.value.param == param


def test_the_schema_clients_see_has_the_same_keys() -> None:
    assert list(SPECULATION["properties"]) == [f.name for f in fields(Speculation)]  # type: ignore[call-overload]
