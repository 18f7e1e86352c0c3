"""The endpoints that do not generate: models, tokens, health, version, metrics, the playground."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from time import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from specserve import __version__
from specserve.errors import InvalidRequest
from specserve.server.body import read_json
from specserve.server.bridge import Bridge
from specserve.server.jobs import Jobs
from specserve.server.routes import described
from specserve.server.schema import DetokenizeBody, TokenizeBody, parse
from specserve.server.served import Served
from specserve.server.wire import dumps

NUM_CONVERTING = 1  # threads; a long text takes seconds and, meanwhile, a hundred times its size


def state_router(bridge: Bridge, registry: CollectorRegistry) -> APIRouter:
    """How the server is, for probes and scrapers; none of it needs a key but `/load`."""
    router = APIRouter(tags=["state"])

    async def health() -> Response:
        return Response(status_code=200 if bridge.is_healthy else 503)

    async def version() -> dict[str, str]:
        return {"version": __version__}

    async def load() -> dict[str, int]:
        return {"server_load": bridge.num_inside}

    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    router.add_api_route("/health", health)
    router.add_api_route("/ping", health)
    router.add_api_route("/ping", health, methods=["POST"], include_in_schema=False)
    router.add_api_route("/version", version)
    router.add_api_route("/load", load)
    router.add_api_route("/metrics", metrics)
    return router


def model_router(served: Served) -> APIRouter:
    """What is served."""
    router = APIRouter(tags=["models"])
    created = int(time())

    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(served, name, created) for name in served.names]}

    async def model(name: str) -> dict[str, Any]:
        return _model(served, served.name_for(name), created)

    router.add_api_route("/v1/models", models)
    router.add_api_route("/v1/models/{name:path}", model)
    return router


def _model(served: Served, name: str, created: int) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "specserve",
        "root": served.root,
        "parent": None,
        "max_model_len": served.max_model_len,
        "permission": [],
    }


def token_router(served: Served, jobs: Jobs, *, max_body: int) -> APIRouter:
    """Text to ids and back."""
    router = APIRouter(tags=["tokens"])
    tokenizer = served.tokenizer
    pool = ThreadPoolExecutor(NUM_CONVERTING, thread_name_prefix="convert")

    def to_tokens(raw: bytes) -> dict[str, Any]:
        body = parse(TokenizeBody, raw)
        served.name_for(body.model)
        ids = jobs.tokenize(body)
        texts = [tokenizer.token_text(token) for token in ids] if body.return_token_strs else None
        return {"count": len(ids), "max_model_len": served.max_model_len, "tokens": ids, "token_strs": texts}

    def to_text(raw: bytes) -> dict[str, Any]:
        body = parse(DetokenizeBody, raw)
        served.name_for(body.model)
        if wrong := [token for token in body.tokens if not 0 <= token < tokenizer.vocab_size]:
            raise InvalidRequest(
                f"tokens holds id {wrong[0]}, outside the vocabulary [0, {tokenizer.vocab_size}).", "tokens"
            )
        return {"prompt": tokenizer.decode(body.tokens, skip_special_tokens=False)}

    async def answer(convert: Callable[[bytes], dict[str, Any]], request: Request) -> Response:
        raw, loop = await read_json(request, max_body), asyncio.get_running_loop()
        body = await loop.run_in_executor(pool, lambda: dumps(convert(raw)))
        return Response(body, media_type="application/json")

    async def tokenize(request: Request) -> Response:
        return await answer(to_tokens, request)

    async def detokenize(request: Request) -> Response:
        return await answer(to_text, request)

    for path, endpoint, body in (
        ("/tokenize", tokenize, TokenizeBody),
        ("/detokenize", detokenize, DetokenizeBody),
    ):
        router.add_api_route(
            path, endpoint, methods=["POST"], response_model=None, openapi_extra=described(path, body)
        )
    return router


def playground_router() -> APIRouter:
    """A page that chats; it comes without a key and asks for one if it must."""
    router = APIRouter(include_in_schema=False)
    page = files("specserve.server").joinpath("playground.html").read_text(encoding="utf-8")

    async def playground() -> Response:
        return HTMLResponse(page)

    router.add_api_route("/", playground)
    return router
