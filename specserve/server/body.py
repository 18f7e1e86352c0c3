"""Reading a JSON body, with a bound that holds while it is read."""

from __future__ import annotations

from fastapi import Request
from starlette.requests import ClientDisconnect

from specserve.server.errors import ApiError, client_gone


async def read_json(request: Request, max_bytes: int) -> bytes:
    """The raw body. Raises `ApiError`: 413 when it is too long, whatever its header says, 400 for other
    types, 499 when the client goes away before its end.

    The type is asked for because browsers send other types across origins without asking the server first.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(400, f"Content-Type must be application/json, got {media_type or 'none'}.")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _too_long(max_bytes)
    try:
        return await _read(request, max_bytes)
    except ClientDisconnect as error:
        raise client_gone() from error


async def _read(request: Request, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    num_bytes = 0
    async for part in request.stream():
        num_bytes += len(part)
        if num_bytes > max_bytes:
            raise _too_long(max_bytes)
        parts.append(part)
    return b"".join(parts)


def _too_long(max_bytes: int) -> ApiError:
    headers = {"Connection": "close"}  # what is left of the body is not read
    return ApiError(413, f"The body is longer than {max_bytes} bytes.", headers=headers)
