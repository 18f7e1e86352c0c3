"""The endpoints that generate: body to job off the event loop, job to answer."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from specserve.server.answer import Answer
from specserve.server.body import read_json
from specserve.server.bridge import Bridge
from specserve.server.jobs import Jobs, Origin
from specserve.server.schema import ChatBody, CompletionBody
from specserve.server.served import Served

NUM_PREPARING = 2  # threads that tokenise; more would take time from the engine's


class Generation:
    """The two endpoints over one bridge."""

    def __init__(self, served: Served, jobs: Jobs, bridge: Bridge, *, max_body: int) -> None:
        self._served = served
        self._jobs = jobs
        self._bridge = bridge
        self._max_body = max_body
        self._pool = ThreadPoolExecutor(NUM_PREPARING, thread_name_prefix="prepare")

    @property
    def router(self) -> APIRouter:
        router = APIRouter(tags=["generation"])
        for path, endpoint, body in (
            ("/v1/completions", self.completions, CompletionBody),
            ("/v1/chat/completions", self.chat, ChatBody),
        ):
            router.add_api_route(
                path, endpoint, methods=["POST"], response_model=None, openapi_extra=described(path, body)
            )
        return router

    async def completions(self, request: Request) -> Response:
        return await self._answer(CompletionBody, request)

    async def chat(self, request: Request) -> Response:
        return await self._answer(ChatBody, request)

    async def _answer(self, kind: type[CompletionBody] | type[ChatBody], request: Request) -> Response:
        arrival = monotonic()
        with self._bridge.place():
            raw = await read_json(request, self._max_body)
            origin = _origin(request, arrival)
            loop = asyncio.get_running_loop()
            job = await loop.run_in_executor(self._pool, self._jobs.make, kind, raw, origin)
        return Answer(job, self._served, self._bridge)


def _origin(request: Request, arrival: float) -> Origin:
    state = request.scope["state"]
    return Origin(state["request_id"], state.get("tenant", ""), arrival, state["is_named"])


def described(path: str, body: type[BaseModel]) -> dict[str, Any]:
    """A body for the generated API pages; it is read by hand, so FastAPI does not see it itself."""
    here = f"#/paths/{path.replace('/', '~1')}/post/requestBody/content/application~1json/schema"
    schema = body.model_json_schema(ref_template=f"{here}/$defs/{{model}}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
