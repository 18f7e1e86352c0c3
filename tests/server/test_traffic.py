"""Request ids and the counting of answers, around any application."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry

from specserve.server.traffic import HttpCounts, Traffic


async def _show(request: Request) -> Response:
    return Response(request.state.request_id)


async def _break(_: Request) -> Response:
    raise RuntimeError("broken")


def ask(
    path: str = "/show", given: str | None = None, method: str = "GET", **options: Any
) -> tuple[httpx.Response, CollectorRegistry]:
    registry = CollectorRegistry()
    inner = FastAPI()
    inner.add_api_route("/show", _show)
    inner.add_api_route("/break", _break)
    app = Traffic(inner, HttpCounts(registry), **options)
    headers = {} if given is None else {"X-Request-Id": given}

    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(main()), registry


def test_a_client_s_id_is_used_and_said_again() -> None:
    reply, _ = ask(given="mine-1")
    assert reply.text == reply.headers["x-request-id"] == "mine-1"


def test_without_one_an_id_is_made_and_said_only_if_wished() -> None:
    reply, _ = ask()
    assert len(reply.text) == 32
    assert "x-request-id" not in reply.headers
    reply, _ = ask(always_says_id=True)
    assert reply.headers["x-request-id"] == reply.text


@pytest.mark.parametrize("given", ["two words", "x" * 257, ""])
def test_an_id_that_would_not_fit_a_header_is_replaced(given: str) -> None:
    reply, _ = ask(given=given)
    assert len(reply.text) == 32


def test_an_answer_that_never_came_counts_as_a_500() -> None:
    _, registry = ask("/break")
    labels = {"handler": "/break", "method": "GET", "status": "5xx"}
    assert registry.get_sample_value("http_requests_total", labels) == 1.0


@pytest.mark.parametrize(("method", "counted"), [("GET", "GET"), ("SPAM17", "other")])
def test_unknown_paths_and_methods_share_one_series(method: str, counted: str) -> None:
    _, registry = ask("/random", method=method)
    labels = {"handler": "none", "method": counted, "status": "4xx"}
    assert registry.get_sample_value("http_requests_total", labels) == 1.0
