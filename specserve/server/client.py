"""A small client of a running server, for `specserve chat --url`.

Proxies are not asked: the server is usually on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from specserve.errors import ConfigError

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event brought. `num_tokens` and `mean_acceptance_length` come once, at the end."""

    text: str = ""
    num_tokens: int | None = None
    mean_acceptance_length: float | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """`url` ends in /v1. Every method raises `ConfigError` with what the server, or the network, says."""

    url: str
    api_key: str

    def models(self) -> list[str]:
        with self._open("/models", None) as response:
            return [model["id"] for model in json.load(response)["data"]]

    def chat(self, model: str, messages: Sequence[Message], options: Mapping[str, Any]) -> Iterator[Piece]:
        """The reply as it comes."""
        body = {
            "model": model,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            **options,
        }
        with self._open("/chat/completions", body) as response:
            for event in _events(response):
                if "error" in event:
                    raise ConfigError(f"{self.url}: {event['error'].get('message', event['error'])}", "url")
                yield _piece(event)

    def _open(self, path: str, body: Mapping[str, Any] | None) -> HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.api_key}", "Content-Type": "application/json"}
        try:
            request = Request(self.url.rstrip("/") + path, data, headers)
            response: HTTPResponse = build_opener(ProxyHandler({})).open(request)
        except HTTPError as error:
            with error:
                raise ConfigError(
                    f"{self.url} answers {error.code}: {_message(error.read())}", "url"
                ) from None
        except (URLError, HTTPException, ValueError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ConfigError(f"Cannot reach {self.url} ({reason}); is the server running?", "url") from None
        return response


def _events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        data = line.decode().strip().removeprefix("data: ")
        if data == "[DONE]":
            return
        if data.startswith("{"):
            yield json.loads(data)


def _piece(event: Mapping[str, Any]) -> Piece:
    text = "".join(choice["delta"].get("content") or "" for choice in event.get("choices") or [])
    usage = event.get("usage") or {}
    speculation = (event.get("metrics") or {}).get("speculative_decoding") or {}
    return Piece(text, usage.get("completion_tokens"), speculation.get("mean_acceptance_length"))


def _message(body: bytes) -> str:
    """The message of an error body, or the body's beginning."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")[:200]
