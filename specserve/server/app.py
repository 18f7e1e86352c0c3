"""The application: routes, and around them keys, cross-origin rules and counts.

`create_app` starts nothing: whoever runs the application starts the bridge on the same event loop, as `run`
does.
"""

from __future__ import annotations

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.middleware.cors import CORSMiddleware

from specserve import __version__
from specserve.config.server import ServerConfig
from specserve.server import errors
from specserve.server.auth import ApiKeys
from specserve.server.bridge import Bridge
from specserve.server.jobs import Jobs
from specserve.server.pages import model_router, playground_router, state_router, token_router
from specserve.server.routes import Generation
from specserve.server.served import Served
from specserve.server.traffic import HttpCounts, Traffic


def create_app(
    served: Served, bridge: Bridge, jobs: Jobs, config: ServerConfig, *, registry: CollectorRegistry
) -> FastAPI:
    """The whole HTTP interface over one bridge. `registry` is what `/metrics` shows."""
    docs = None if config.disable_fastapi_docs else "/openapi.json"
    app = FastAPI(title="specserve", version=__version__, openapi_url=docs)
    errors.install(app)
    app.include_router(Generation(served, jobs, bridge, max_body=config.max_body_bytes).router)
    app.include_router(model_router(served))
    app.include_router(token_router(served, jobs, max_body=config.max_body_bytes))
    app.include_router(state_router(bridge, registry))
    app.include_router(playground_router())
    # The last one added is the outermost: a refusal needs cross-origin headers and is counted too.
    app.add_middleware(ApiKeys, keys=config.api_key)
    if config.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allowed_origins,
            allow_methods=config.allowed_methods,
            allow_headers=config.allowed_headers,
            allow_credentials=config.allow_credentials,
            expose_headers=["X-Request-Id"],
        )
    app.add_middleware(Traffic, counts=HttpCounts(registry), always_says_id=config.enable_request_id_headers)
    return app
