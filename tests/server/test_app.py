"""The whole server over HTTP, with a scripted engine behind it."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore, current_thread
from typing import Any

import pytest

from tests.support.fake_engine import SCRIPT, FakeEngine
from tests.support.server import Running, serving

USER = {"role": "user", "content": "hi"}
GENERATION = ["/v1/completions", "/v1/chat/completions"]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(max_body_bytes=10_000) as running:
        yield running


def error_of(reply: Any, status: int) -> dict[str, Any]:
    """The error of a reply, its shape checked."""
    assert reply.status_code == status, reply.text
    error: dict[str, Any] = reply.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == status
    return error


def until(condition: Any) -> None:
    """Spin until the engine's thread got there; it is busy doing so."""
    while not condition():
        pass


# --- pages ------------------------------------------------------------------------------------


def test_models_are_listed_and_found_by_name(server: Running) -> None:
    [model] = server.client.get("/v1/models").json()["data"]
    assert (model["id"], model["root"], model["max_model_len"]) == ("fake", "/models/fake", 200)
    assert server.client.get("/v1/models/fake").json() == model
    assert error_of(server.client.get("/v1/models/other"), 404)["param"] == "model"


def test_text_to_tokens_and_back(server: Running) -> None:
    reply = server.post("/tokenize", prompt="hé", return_token_strs=True).json()
    assert reply == {
        "count": 3, "max_model_len": 200, "tokens": [104, 195, 169], "token_strs": ["h", "\ufffd", "\ufffd"],
    }  # fmt: skip
    assert server.post("/detokenize", tokens=[104, 195, 169]).json() == {"prompt": "hé"}
    assert server.post("/tokenize", messages=[USER]).json()["count"] == 11
    assert server.post("/tokenize", prompt="a").json()["token_strs"] is None


def test_texts_are_converted_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, threads = FakeEngine(), set[str]()
    encode = engine.tokenizer.encode

    def watched(text: str, add_special_tokens: bool = True) -> list[int]:
        threads.add(current_thread().name)
        return encode(text, add_special_tokens)

    monkeypatch.setattr(engine.tokenizer, "encode", watched)
    with serving(engine) as server, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda text: server.post("/tokenize", prompt=text), ["a", "ab"] * 16))
    assert [reply.json()["count"] for reply in replies] == [1, 2] * 16
    assert len(threads) == 1
    assert not threads & {server.thread.name, "engine"}


def test_tokens_outside_the_vocabulary_are_refused(server: Running) -> None:
    assert error_of(server.post("/detokenize", tokens=[1, 9999]), 400)["param"] == "tokens"
    error_of(server.post("/detokenize", tokens=["a"]), 400)


def test_probes_and_version(server: Running) -> None:
    for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")):
        reply = server.client.request(method, path)
        assert (reply.status_code, reply.content) == (200, b"")
    assert re.fullmatch(r"\d+\.\d+.*", server.client.get("/version").json()["version"])
    assert server.client.get("/load").json() == {"server_load": 0}


def test_the_playground_is_one_page_without_outside_parts(server: Running) -> None:
    reply = server.client.get("/")
    assert reply.headers["content-type"].startswith("text/html")
    assert "<title>specserve" in reply.text
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", reply.text)


def test_answers_are_counted_by_handler_method_and_status() -> None:
    with serving() as server:
        server.complete()
        server.post("/v1/completions", prompt=None)
        server.client.get("/health")
        server.client.get("/random/path")
        server.client.get("/v1/models/fake")
        lines = server.client.get("/metrics").text.splitlines()
    counted = {line for line in lines if line.startswith("http_requests_total{")}
    assert counted == {
        'http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 1.0',
        'http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 1.0',
        'http_requests_total{handler="none",method="GET",status="4xx"} 1.0',
        'http_requests_total{handler="/v1/models/{name:path}",method="GET",status="2xx"} 1.0',
    }


def test_the_generated_description_has_no_loose_ends(server: Running) -> None:
    described = server.client.get("/openapi.json").json()
    assert set(described["paths"]) >= {*GENERATION, "/v1/models", "/tokenize", "/health"}
    for pointer in set(re.findall(r'"\$ref": "#/([^"]*)"', json.dumps(described))):
        found = described
        for step in pointer.split("/"):
            found = found[step.replace("~1", "/")]


# --- generation -------------------------------------------------------------------------------


def test_completions_and_chats_answer(server: Running) -> None:
    assert server.complete()["choices"][0]["text"] == SCRIPT
    assert server.chat()["choices"][0]["message"]["content"] == SCRIPT


@pytest.mark.parametrize("path", GENERATION)
def test_streams_are_server_sent_events(server: Running, path: str) -> None:
    body = {"prompt": "x"} if path == GENERATION[0] else {"messages": [USER]}
    reply = server.post(path, **body, max_tokens=100, stream=True)
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = reply.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    choices = [json.loads(event[6:])["choices"][0] for event in events[:-2]]
    assert "".join(c["text"] if "text" in c else c["delta"]["content"] for c in choices) == SCRIPT


def test_the_client_s_request_id_comes_back(server: Running) -> None:
    reply = server.client.post("/v1/completions", json={"prompt": "x"}, headers={"X-Request-Id": "mine"})
    assert reply.headers["x-request-id"] == "mine"
    assert reply.json()["id"] == "cmpl-mine"
    odd = server.client.post("/v1/completions", json={"prompt": "x"}, headers={"X-Request-Id": "a b"})
    assert "x-request-id" not in odd.headers
    assert "a b" not in odd.json()["id"]
    assert "x-request-id" not in server.client.get("/version").headers
    unnamed = server.client.get("/no/such/path", headers={"X-Request-Id": "lost"})
    assert unnamed.headers["x-request-id"] == "lost"


def test_arrival_is_counted_from_when_the_request_came(server: Running) -> None:
    server.complete()
    before = server.engine.requests[-1].arrival
    server.complete()
    assert server.engine.requests[-1].arrival > before


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b'{"prompt": "\\udfff"}', "JSON"),
        (b'{"prompt": "x", "temperature": NaN}', "temperature"),
        (b'{"prompt": ' + b"[" * 5000, "JSON"),
        (b'{"prompt": "x", "max_tokens": "x"}', "max_tokens"),
        (b'{"prompt": "x", "n": 1000}', "n must be"),
        (b'{"prompt": "x", "stop": ["a","b","c","d","e"]}', "at most 4"),
        (b'{"prompt": "x", "max_tokens": 5000}', "maximum context length is 200"),
        (b'{"prompt": "x", "tools": [1]}', "tools is not built yet"),
        (b'{"prompt": "x", "response_format": {"type": "json_object"}}', "response_format is not built yet"),
        (b'{"prompt": [1000]}', "vocabulary"),
    ],
)
def test_bad_bodies_are_400s_that_say_why(server: Running, raw: bytes, part: str) -> None:
    headers = {"content-type": "application/json"}
    reply = server.client.post("/v1/completions", content=raw, headers=headers)
    assert part in error_of(reply, 400)["message"]


def test_an_unknown_model_is_a_404(server: Running) -> None:
    assert "`fake`" in error_of(server.post("/v1/completions", model="gpt", prompt="x"), 404)["message"]
    error_of(server.post("/tokenize", model="gpt", prompt="x"), 404)


def test_the_framework_s_refusals_have_the_same_shape(server: Running) -> None:
    assert error_of(server.client.get("/nope"), 404)["type"] == "Not Found"
    reply = server.client.get("/v1/completions")
    assert error_of(reply, 405)["type"] == "Method Not Allowed"
    assert reply.headers["allow"] == "POST"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_only_json_is_read(server: Running, kind: str) -> None:
    reply = server.client.post("/v1/completions", content=b'{"prompt": "x"}', headers={"content-type": kind})
    assert "application/json" in error_of(reply, 400)["message"]


def test_json_with_a_charset_is_json(server: Running) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert (
        server.client.post("/v1/completions", content=b'{"prompt": "x"}', headers=headers).status_code == 200
    )


@pytest.mark.parametrize("path", [*GENERATION, "/tokenize", "/detokenize"])
def test_a_body_that_is_too_long_is_a_413_whatever_its_header_says(server: Running, path: str) -> None:
    headers = {"content-type": "application/json"}
    body = b" " * 10_001
    error_of(server.client.post(path, content=body, headers=headers), 413)
    pieces = (body[at : at + 1000] for at in range(0, len(body), 1000))  # no length announced
    error_of(server.client.post(path, content=pieces, headers=headers), 413)


def test_a_bug_is_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    engine.check = lambda _: 1 / 0  # type: ignore[method-assign,assignment]
    with serving(engine) as server:
        error = error_of(server.post("/v1/completions", prompt="x"), 500)
    assert error["message"] == "Internal server error."
    assert "ZeroDivisionError" in caplog.text


# --- load -------------------------------------------------------------------------------------


def test_a_full_queue_is_a_503_that_says_when_to_retry() -> None:
    engine = FakeEngine()
    with serving(engine) as server:
        engine.max_waiting = 1
        for stream in (False, True):
            reply = server.post("/v1/completions", prompt=["x", "y"], stream=stream)
            error_of(reply, 503)
            assert int(reply.headers["retry-after"]) > 0
        server.complete()
        assert not engine.running


def test_places_taken_is_a_503_too() -> None:
    engine = FakeEngine()
    with serving(engine, max_requests=1) as server:
        engine.gate = Semaphore(1)
        with server.client.stream("POST", "/v1/completions", json={"prompt": "x", "stream": True}) as reply:
            assert server.client.get("/load").json() == {"server_load": 1}
            refused = server.post("/v1/completions", prompt="y")
            error_of(refused, 503)
            assert refused.headers["retry-after"]
            engine.gate.release(1000)
            assert reply.read().endswith(b"data: [DONE]\n\n")


def test_nothing_is_served_until_the_model_is_warm() -> None:
    engine = FakeEngine()
    engine.gate = Semaphore(0)
    with serving(engine, wait=False) as server:
        for path in ("/health", "/ping"):
            assert server.client.get(path).status_code == 503
        assert "warming up" in error_of(server.post("/v1/completions", prompt="x"), 503)["message"]
        assert server.client.get("/v1/models").status_code == 200


# --- faults -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_step_that_fails_at_once_is_a_500(stream: bool) -> None:
    engine = FakeEngine()
    with serving(engine) as server:
        engine.step_error = RuntimeError("secret path")
        error = error_of(server.post("/v1/completions", prompt="x", stream=stream), 500)
        assert "secret" not in error["message"]
        assert server.complete()["choices"][0]["text"] == SCRIPT


def test_a_step_that_fails_later_ends_the_stream_with_an_error_event() -> None:
    engine = FakeEngine()
    with serving(engine) as server:
        engine.gate = Semaphore(1)
        body = {"messages": [USER], "stream": True}
        with server.client.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200
            engine.step_error = RuntimeError("secret path")
            engine.gate.release(1000)
            events = reply.read().decode().split("\n\n")
        assert json.loads(events[-3][6:])["error"]["code"] == 500
        assert events[-2] == "data: [DONE]"
        assert server.client.get("/health").status_code == 200


def test_a_dead_engine_is_unhealthy_and_answers_503() -> None:
    engine = FakeEngine()
    with serving(engine) as server:
        engine.step_error, engine.fail_error = RuntimeError("a"), RuntimeError("b")
        error_of(server.post("/v1/completions", prompt="x"), 500)
        assert server.client.get("/health").status_code == 503
        assert server.client.get("/ping").status_code == 503
        error_of(server.post("/v1/chat/completions", messages=[USER]), 503)
        assert server.client.get("/metrics").status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_is_aborted_within_a_step(stream: bool) -> None:
    engine = FakeEngine(lambda _request, _index: "word " * 30)
    with serving(engine) as server:
        for number in range(5):
            engine.gate = Semaphore(0)
            with socket.create_connection(("127.0.0.1", server.client.base_url.port)) as client:
                client.sendall(_raw_request({"prompt": "x", "max_tokens": 150, "stream": stream}))
                until(lambda: engine.running)
                engine.gate.release(2)
                if stream:
                    assert client.recv(1000)
            until(lambda: server.bridge.num_inside == 0)  # the event loop has seen it
            engine.gate.release(1)  # the step that may be running
            until(lambda number=number: len(engine.aborted) == number + 1)
            assert not engine.running


def test_a_client_that_does_not_read_is_aborted() -> None:
    engine = FakeEngine(lambda _request, _index: "x" * 5000, block=1)
    with serving(engine, served={"max_model_len": 10**9}) as server:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.connect(("127.0.0.1", server.client.base_url.port))
            body = {"prompt": "x", "max_tokens": 10**8, "stream": True, "ignore_eos": True, "logprobs": 20}
            client.sendall(_raw_request(body))
            until(lambda: engine.aborted)
            assert server.client.get("/load").json() == {"server_load": 0}
        assert not engine.running


def _raw_request(body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


# --- the end ----------------------------------------------------------------------------------


def test_a_drain_lets_running_requests_finish() -> None:
    engine = FakeEngine()
    with serving(engine, shutdown_timeout=20) as server:
        engine.gate = Semaphore(1)
        with server.client.stream("POST", "/v1/completions", json={"prompt": "x", "stream": True}) as reply:
            server.call(server.lifecycle.stop)
            until(lambda: not server.bridge.is_healthy)
            engine.gate.release(1000)
            choices = [json.loads(e[6:])["choices"][0] for e in reply.read().decode().split("\n\n")[:-2]]
        server.thread.join(20)
    assert choices[-1]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_a_drain_aborts_what_takes_too_long(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    engine = FakeEngine()
    with serving(engine) as server:
        engine.gate = Semaphore(0)
        with socket.create_connection(("127.0.0.1", server.client.base_url.port)) as client:
            client.sendall(_raw_request({"prompt": "x", "stream": stream}))
            until(lambda: engine.running)
            server.call(server.lifecycle.stop)
            reply = b"".join(iter(lambda: client.recv(65536), b""))
        engine.gate.release(1000)
        server.thread.join(20)
    assert reply.startswith(b"HTTP/1.1 200")
    assert b'"finish_reason":"abort"' in reply
    assert "Aborted what was still running" in caplog.text


def test_readiness_is_announced_in_the_words_scripts_wait_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with serving():
        assert "Application startup complete." in caplog.text
