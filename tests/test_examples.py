"""The example programs run, and show what they say they show."""

from __future__ import annotations

import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.model
EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, capsys: pytest.CaptureFixture[str], *args: str) -> str:
    runpy.run_path(str(EXAMPLES / name))["main"](*args)
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "specserve", "serve", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(
        [*command, "--spec-method", "ngram", "--spec-tokens", "3"], stderr=subprocess.PIPE
    )
    assert server.stderr is not None
    lines = iter(server.stderr.readline, b"")
    assert any(b"Application startup complete" in line for line in lines), "the server ended early"
    yield f"http://127.0.0.1:{port}/v1"
    server.terminate()
    server.communicate(timeout=30)


def test_offline_text_is_the_same_with_speculation(capsys: pytest.CaptureFixture[str]) -> None:
    assert "same tokens: True" in run("offline.py", capsys)


def test_sampling_parameters_work_with_speculation(capsys: pytest.CaptureFixture[str]) -> None:
    assert "same seed, same text: True" in run("sampling.py", capsys)


def test_the_openai_client_streams_a_chat(server_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert " tokens]" in run("stream.py", capsys, server_url)
