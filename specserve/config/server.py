"""How to serve: every option of the HTTP side, in vLLM's names where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specserve.config.kinds import COUNT, INTEGER, NUMBER, STRINGS, SWITCH, TEXT, TEXTS
from specserve.config.options import from_mapping, option, settle
from specserve.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Raises `ConfigError` for a value that cannot be and `NotBuiltYet` for an announced one."""

    host: str = option("127.0.0.1", TEXT, "address to listen on; 0.0.0.0 for all")
    port: int = option(8000, INTEGER, "port to listen on; 0 takes a free one", low=0, high=65535)
    uds: str | None = option(None, TEXT, "path of a Unix socket to listen on in place of host and port")
    root_path: str = option("", TEXT, "path prefix that a proxy strips")
    api_key: tuple[str, ...] = option(
        (), TEXTS, "keys clients must bring; each is a tenant of its own", like="VLLM_API_KEY", secret=True
    )
    allowed_origins: tuple[str, ...] = option(
        (), STRINGS, "origins of pages that may call from a browser (CORS)"
    )
    allow_credentials: bool = option(False, SWITCH, "let such pages send cookies")
    allowed_methods: tuple[str, ...] = option(("*",), STRINGS, "methods such pages may use")
    allowed_headers: tuple[str, ...] = option(("*",), STRINGS, "headers such pages may send")
    max_body_bytes: int = option(32 * 2**20, COUNT, "longest request body", low=1024)
    shutdown_timeout: float = option(
        10.0, NUMBER, "seconds that running requests get to finish after SIGTERM; 0 aborts them", low=0
    )

    chat_template: str | None = option(
        None, TEXT, "chat template, or a file that holds it", like="the model's own"
    )
    chat_template_content_format: str = option(
        "auto", TEXT, "how templates want contents", choices=("auto", "string"), announced=("openai",)
    )
    trust_request_chat_template: bool = option(False, SWITCH, "let requests bring their own chat template")
    response_role: str = option("assistant", TEXT, "role in replies")
    enable_prompt_tokens_details: bool = option(True, SWITCH, "cached tokens in `usage`")
    enable_force_include_usage: bool = option(False, SWITCH, "usage in every stream, asked for or not")
    enable_request_id_headers: bool = option(False, SWITCH, "X-Request-Id in every reply")

    uvicorn_log_level: str = option(
        "info",
        TEXT,
        "what the HTTP layer logs",
        choices=("critical", "error", "warning", "info", "debug", "trace"),
    )
    disable_uvicorn_access_log: bool = option(False, SWITCH, "no log line per HTTP request")
    disable_fastapi_docs: bool = option(False, SWITCH, "no /docs, /redoc and /openapi.json")
    ssl_keyfile: str | None = option(None, TEXT, "file of the key for HTTPS")
    ssl_certfile: str | None = option(None, TEXT, "file of the certificate for HTTPS")

    ssl_ca_certs: str | None = option(None, TEXT, "authorities for client certificates", is_built=False)
    ssl_cert_reqs: int = option(0, INTEGER, "whether clients need a certificate", is_built=False)
    middleware: tuple[str, ...] = option((), TEXTS, "middleware to add, by import path", is_built=False)
    enable_auto_tool_choice: bool = option(False, SWITCH, "let the model choose tools", is_built=False)
    tool_call_parser: str | None = option(None, TEXT, "how the model writes tool calls", is_built=False)
    reasoning_parser: str | None = option(None, TEXT, "how the model marks its thinking", is_built=False)
    return_tokens_as_token_ids: bool = option(False, SWITCH, "ids for tokens in logprobs", is_built=False)
    enable_per_request_metrics: bool = option(False, SWITCH, "times in each reply", is_built=False)
    enable_server_load_tracking: bool = option(False, SWITCH, "count requests for /load", is_built=False)
    enable_tokenizer_info_endpoint: bool = option(False, SWITCH, "GET /tokenizer_info", is_built=False)
    enable_log_outputs: bool = option(False, SWITCH, "log what is generated", is_built=False)
    max_log_len: int | None = option(None, INTEGER, "longest logged prompt", low=0, is_built=False)
    sse_keep_alive_interval: float = option(
        0.0, NUMBER, "seconds between comments in a silent stream", low=0, is_built=False
    )
    fingerprint_mode: str = option("full", TEXT, "what system_fingerprint tells", is_built=False)

    def __post_init__(self) -> None:
        settle(self)
        if self.allow_credentials and "*" in self.allowed_origins:
            raise ConfigError(
                "allow_credentials needs allowed_origins that are named; '*' would let every page in.",
                "allow_credentials",
            )


def server_config(options: Mapping[str, Any]) -> ServerConfig:
    """From untyped options. Raises `ConfigError`, also for an unknown name."""
    return from_mapping(ServerConfig, options)
