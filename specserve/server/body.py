"""Reading a JSON body, with bounds that hold while it is read."""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.requests import ClientDisconnect

from specserve.server.errors import ApiError, client_gone

MAX_SILENCE = 30.0  # seconds; whoever sends takes one of the places, of which there are only so many
_CLOSE = {"Connection": "close"}  # what is left of the body is not read


async def read_json(request: Request, max_bytes: int) -> bytes:
    """The raw body. Raises `ApiError`: 413 when it is too long, whatever its header says, 400 for other
    types, 408 when the client stops sending, 499 when it goes away before the end.

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
    except TimeoutError as error:
        message = f"Nothing of the body came for {MAX_SILENCE:g} seconds."
        raise ApiError(408, message, headers=_CLOSE) from error


async def _read(request: Request, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    num_bytes, now = 0, asyncio.get_running_loop().time
    async with asyncio.timeout(MAX_SILENCE) as limit:
        async for part in request.stream():
            limit.reschedule(now() + MAX_SILENCE)
            num_bytes += len(part)
            if num_bytes > max_bytes:
                raise _too_long(max_bytes)
            parts.append(part)
    return b"".join(parts)


def _too_long(max_bytes: int) -> ApiError:
    return ApiError(413, f"The body is longer than {max_bytes} bytes.", headers=_CLOSE)
