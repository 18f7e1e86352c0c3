"""Keys: what is guarded, how a refusal looks, and whose requests are whose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import Running, serving

KEYS = ("first-key", "zweiter-schlüssel")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(
        api_key=KEYS, allowed_origins=["https://page.example"], enable_request_id_headers=True
    ) as running:
        yield running


def status(server: Running, method: str, path: str, authorization: str | None) -> int:
    headers = (
        {"authorization": authorization.encode()} if authorization is not None else {"authorization": b""}
    )
    return server.client.request(method, path, headers=headers).status_code


@pytest.mark.parametrize("path", ["/health", "/ping", "/version", "/metrics", "/"])
def test_open_paths_need_no_key(server: Running, path: str) -> None:
    assert status(server, "GET", path, None) == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/fake"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/tokenize"),
        ("POST", "/detokenize"),
        ("GET", "/load"),
        ("GET", "/openapi.json"),
        ("GET", "/no/such/path"),
        ("GET", "//v1/models"),
        ("GET", "/health/../v1/models"),
    ],
)
def test_everything_else_is_guarded(server: Running, method: str, path: str) -> None:
    assert status(server, method, path, None) == 401


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_each_key_opens(server: Running, scheme: str, key: str) -> None:
    assert status(server, "GET", "/v1/models", f"{scheme} {key}") == 200


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer first", "Bearer first-key2", "first-key", "Basic first-key"]
)
def test_anything_else_does_not(server: Running, given: str) -> None:
    assert status(server, "GET", "/v1/models", given) == 401


def test_a_refusal_has_openai_s_shape(server: Running) -> None:
    reply = server.client.get("/v1/models", headers={"authorization": ""})
    error = reply.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("AuthenticationError", 401)
    assert reply.headers["www-authenticate"] == "Bearer"
    assert reply.headers["x-request-id"]


def test_preflights_carry_no_key_and_refusals_can_be_read_by_the_page(server: Running) -> None:
    origin = {"origin": "https://page.example", "access-control-request-method": "POST", "authorization": ""}
    reply = server.client.options("/v1/chat/completions", headers=origin)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == "https://page.example"
    refusal = server.client.get("/v1/models", headers=origin)
    assert refusal.status_code == 401
    assert refusal.headers["access-control-allow-origin"] == "https://page.example"


def test_other_origins_are_not_let_in(server: Running) -> None:
    origin = {"origin": "https://other.example", "access-control-request-method": "POST"}
    reply = server.client.options("/v1/chat/completions", headers=origin)
    assert "access-control-allow-origin" not in reply.headers


def test_key_and_salt_together_are_the_tenant(server: Running) -> None:
    seen = []
    for key in KEYS:
        for salt in (None, "a", "b"):
            headers = {"authorization": f"Bearer {key}".encode()}
            body = {"prompt": "x", "cache_salt": salt}
            assert server.client.post("/v1/completions", json=body, headers=headers).status_code == 200
            seen.append(server.engine.requests[-1].tenant)
    assert len(set(seen)) == len(seen) == 6
    assert not any(key in tenant for tenant in seen for key in KEYS)


def test_without_keys_everything_is_open_and_one_tenant() -> None:
    with serving() as server:
        server.complete()
        headers = {"authorization": "Bearer unused"}
        server.client.post("/v1/completions", json={"prompt": "x"}, headers=headers)
        assert [request.tenant for request in server.engine.requests[1:]] == ["", ""]


def test_a_root_path_does_not_hide_the_open_paths() -> None:
    with serving(api_key=KEYS, root_path="/models") as server:
        assert status(server, "GET", "/health", None) == 200
        assert status(server, "GET", "/v1/models", None) == 401
