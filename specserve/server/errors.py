"""Errors as OpenAI's clients expect them: `{"error": {"message", "type", "param", "code"}}`.

Whatever a handler raises becomes an `ApiError` here; an unexpected exception becomes a 500 that tells the
client nothing about our insides.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from specserve.errors import Overloaded, UserError
from specserve.server.wire import dumps

MAX_LISTED = 10  # schema errors in one message
MAX_MESSAGE = 2000  # characters; a message may quote what the client sent
RETRY_AFTER = {"Retry-After": "1"}

_BRANCHES = {"str", "int", "float", "bool"}  # and everything with a bracket
_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


class ApiError(Exception):
    """An answer other than 200. `kind` is the body's `type`; None takes the status's usual one."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message[:MAX_MESSAGE]
        self.kind = kind or _TYPES.get(status) or HTTPStatus(status).phrase
        self.param = param
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return {"error": error}

    def response(self) -> Response:
        return Response(dumps(self.body), self.status, self.headers, "application/json")


def client_gone() -> ApiError:
    """For the log and the counts only: nobody is there to read it."""
    return ApiError(499, "The client closed the connection.", kind="ClientClosedRequest")


def unavailable(message: str) -> ApiError:
    """503 with the advice to come back: the fault is ours and passes."""
    return ApiError(503, message, headers=RETRY_AFTER)


def as_api_error(error: Exception) -> ApiError:
    """The answer to whatever was raised."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Overloaded):
        return unavailable(str(error))
    if isinstance(error, UserError):
        return ApiError(400, str(error), param=error.param)
    if isinstance(error, HTTPException):  # of the framework: no such path, method not allowed
        phrase = HTTPStatus(error.status_code).phrase
        return ApiError(error.status_code, str(error.detail), kind=phrase, headers=error.headers)
    # The server closes the connection then, and a client that is not told would use it once more.
    return ApiError(500, "Internal server error.", headers={"Connection": "close"})


def schema_error(error: ValidationError) -> ApiError:
    """A body that does not fit: 400 naming at most `MAX_LISTED` fields by their paths."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [": ".join(filter(None, [_path(entry["loc"]), entry["msg"]])) for entry in found[:MAX_LISTED]]
    if len(found) > MAX_LISTED:
        lines.append(f"and {len(found) - MAX_LISTED} more")
    return ApiError(400, "; ".join(lines), kind="Bad Request", param=_path(found[0]["loc"]) or None)


def _path(location: tuple[int | str, ...]) -> str:
    """`messages.0.role`; the names of a union's branches, such as `list[int]`, are left out."""
    return ".".join(str(step) for step in location if step not in _BRANCHES and "[" not in str(step))


def install(app: FastAPI) -> None:
    """Answer every exception in this shape. Unexpected ones are logged by the server as well."""

    async def answer(_: Request, error: Exception) -> Response:
        return as_api_error(error).response()

    for kind in (ApiError, UserError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
