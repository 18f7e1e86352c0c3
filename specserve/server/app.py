"""The application: routes, and around them keys, cross-origin rules and counts.

    run(EngineConfig(...), ServerConfig(...))     # what `specserve serve` does

`create_app` starts nothing: whoever runs the application starts the bridge on the same event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.middleware.cors import CORSMiddleware

from specserve import __version__
from specserve.server import errors
from specserve.server.auth import ApiKeys
from specserve.server.body import MAX_BODY
from specserve.server.bridge import Bridge
from specserve.server.jobs import Jobs
from specserve.server.pages import model_router, playground_router, state_router, token_router
from specserve.server.routes import Generation
from specserve.server.served import Served
from specserve.server.traffic import HttpCounts, Traffic


@dataclass(frozen=True, slots=True)
class Cors:
    """Which pages of other origins may use the server from a browser; none by default."""

    origins: Sequence[str] = ()
    methods: Sequence[str] = ("*",)
    headers: Sequence[str] = ("*",)
    with_credentials: bool = False


def create_app(
    served: Served,
    bridge: Bridge,
    jobs: Jobs,
    *,
    api_keys: Sequence[str] = (),
    cors: Cors | None = None,
    registry: CollectorRegistry | None = None,
    max_body: int = MAX_BODY,
) -> FastAPI:
    """The whole HTTP interface over one bridge. `registry` is what `/metrics` shows; `max_body` in bytes."""
    registry = registry or CollectorRegistry()
    app = FastAPI(title="specserve", version=__version__)
    errors.install(app)
    app.include_router(Generation(served, jobs, bridge, max_body=max_body).router)
    app.include_router(model_router(served))
    app.include_router(token_router(served, jobs, max_body=max_body))
    app.include_router(state_router(bridge, registry))
    app.include_router(playground_router())
    # The last one added is the outermost: a refusal needs cross-origin headers and is counted too.
    app.add_middleware(ApiKeys, keys=api_keys)
    if cors is not None and cors.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=cors.origins,
            allow_methods=cors.methods,
            allow_headers=cors.headers,
            allow_credentials=cors.with_credentials,
            expose_headers=["X-Request-Id"],
        )
    app.add_middleware(Traffic, counts=HttpCounts(registry))
    return app
