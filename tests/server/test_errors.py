"""Errors in OpenAI's shape."""

from __future__ import annotations

import json

import pytest
from starlette.exceptions import HTTPException

from specserve.errors import InvalidRequest, NotBuiltYet, Overloaded
from specserve.server.errors import MAX_MESSAGE, ApiError, as_api_error


@pytest.mark.parametrize(
    ("raised", "status", "kind", "param"),
    [
        (InvalidRequest("bad", "n"), 400, "BadRequestError", "n"),
        (NotBuiltYet("tools", "tools"), 400, "BadRequestError", "tools"),
        (Overloaded("full"), 503, "ServiceUnavailableError", None),
        (HTTPException(405), 405, "Method Not Allowed", None),
        (ApiError(404, "gone", param="model"), 404, "NotFoundError", "model"),
        (ValueError("a bug"), 500, "InternalServerError", None),
    ],
)
def test_what_is_raised_becomes_an_answer(
    raised: Exception, status: int, kind: str, param: str | None
) -> None:
    error = as_api_error(raised)
    assert error.response().status_code == status
    assert error.body["error"]["code"] == status
    assert error.body["error"]["type"] == kind
    assert error.body["error"]["param"] == param


def test_being_full_says_when_to_come_back() -> None:
    assert as_api_error(Overloaded("full")).response().headers["retry-after"] == "1"


def test_a_bug_s_message_stays_here() -> None:
    assert "a bug" not in as_api_error(ValueError("a bug")).message


def test_after_a_bug_no_client_uses_the_connection_again() -> None:
    assert as_api_error(ValueError("a bug")).response().headers["connection"] == "close"


def test_messages_that_quote_the_client_are_bounded_and_printable() -> None:
    response = ApiError(400, "\ud800" * 10_000).response()
    assert len(json.loads(response.body)["error"]["message"]) == MAX_MESSAGE
