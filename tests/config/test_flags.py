"""Command lines and YAML files: spellings, precedence, lists, switches, unknown names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specserve.config.engine import EngineConfig, engine_config
from specserve.config.flags import Command, command_parser, parse_flags, read_yaml, select
from specserve.config.server import ServerConfig, server_config
from specserve.config.terminal import ChatFlags, SamplingFlags
from specserve.errors import ConfigError

SERVE = Command("serve", "Serve.", (EngineConfig, ServerConfig), "model")
WRITE = Command("write", "Write.", (SamplingFlags, EngineConfig), "prompts", takes_many=True)
CHAT = Command("chat", "Chat.", (ChatFlags, EngineConfig), "model")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {}),
        ("small", {"model": "small"}),
        ("--model small", {"model": "small"}),
        ("small --model small", {"model": "small"}),
        ("--max-num-seqs 4", {"max_num_seqs": "4"}),
        ("--max_num_seqs 4", {"max_num_seqs": "4"}),
        ("--max_num-seqs=4", {"max_num_seqs": "4"}),
        ("--max-model-len -1", {"max_model_len": "-1"}),
        ("--max-num-seqs 4 small --port 1", {"max_num_seqs": "4", "model": "small", "port": "1"}),
        ("--served-model-name a b --port 1", {"served_model_name": ["a", "b"], "port": "1"}),
        ("--api-key a --api-key b", {"api_key": ["a", "b"]}),
        ("--enable-prefix-caching", {"enable_prefix_caching": True}),
        ("--no-enable-prefix-caching", {"enable_prefix_caching": False}),
        ("--no_enable_prefix_caching", {"enable_prefix_caching": False}),
        ("-tp 1 -q int8", {"tensor_parallel_size": "1", "quantization": "int8"}),
        ('-sc {"a_b":1}', {"speculative_config": '{"a_b":1}'}),
        ('-sc={"a_b":1}', {"speculative_config": '{"a_b":1}'}),
    ],
)
def test_flags_as_they_are_typed(line: str, expected: dict[str, Any]) -> None:
    assert parse_flags(SERVE, line.split()) == expected


def test_prompts_and_flags_may_be_mixed() -> None:
    found = parse_flags(WRITE, ["one", "--max-tokens", "5", "two words"])
    assert found == {"prompts": ["one", "two words"], "max_tokens": "5"}
    assert "prompts" not in parse_flags(WRITE, ["--max-tokens", "5"])


def test_a_short_flag_belongs_to_the_first_who_wants_it() -> None:
    assert parse_flags(CHAT, ["-q", "hello"]) == {"quick": "hello"}
    assert parse_flags(SERVE, ["-q", "int8"]) == {"quantization": "int8"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--max-num-seq 4", "Unknown flag --max-num-seq; the nearest known name is '--max-num-seqs'."),
        ("--max_num_seq=4", "Unknown flag --max-num-seq; the nearest known name is '--max-num-seqs'."),
        ("--confg a", "Unknown flag --confg; the nearest known name is '--config'."),
        ("--max-num 4", "Unknown flag --max-num; the nearest known name is '--max-num-seqs'."),
        ("--zzz 4", "Unknown flag --zzz; specserve serve --help lists the known ones."),
        ("a b", "Unexpected argument 'b'; see specserve serve --help."),
        ("--port", "Argument --port: expected one argument; see specserve serve --help."),
        ("a --model b", "model is given twice: 'a' and a flag."),
        ("--config absent.yaml", "--config: cannot read absent.yaml"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_flags(SERVE, line.split())
    assert str(caught.value).startswith(message)


def test_help_ends_the_process_and_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_flags(SERVE, ["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert all(f"--{name.replace('_', '-')}" in text for name in SERVE.options)
    assert "[not built yet]" in text


def test_options_of_one_command_have_different_names() -> None:
    for command in (SERVE, WRITE, CHAT):
        assert sum(len(Command("", "", (config,)).options) for config in command.configs) == len(
            command.options
        )
        command_parser(command)


def test_select_takes_the_fields_of_one_configuration() -> None:
    values = parse_flags(SERVE, ["small", "--port", "1"])
    assert select(values, EngineConfig) == {"model": "small"}
    assert select(values, ServerConfig) == {"port": "1"}


# --- YAML -----------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "serve.yaml"
    path.write_text(
        "model: small\nmax-num-seqs: 4\nport: 9\nenable_prefix_caching: false\napi-key: [a, b]\n"
        "speculative-config:\n  method: ngram\n  num_speculative_tokens: 4\n"
    )
    return path


def test_a_file_says_what_flags_say(file: Path) -> None:
    values = parse_flags(SERVE, ["--config", str(file)])
    engine = engine_config(select(values, EngineConfig))
    server = server_config(select(values, ServerConfig))
    assert (engine.model, engine.max_num_seqs, engine.enable_prefix_caching) == ("small", 4, False)
    assert engine.speculative_config == {"method": "ngram", "num_speculative_tokens": 4}
    assert (server.port, server.api_key) == (9, ("a", "b"))


def test_the_command_line_wins_wherever_it_stands(file: Path) -> None:
    given = ["other", "--port", "1", "--enable-prefix-caching", "--api-key", "c", "-sc", '{"method": "x"}']
    for line in ([*given, "--config", str(file)], ["--config", str(file), *given]):
        values = parse_flags(SERVE, line)
        assert values["model"] == "other"
        assert values["port"] == "1"
        assert values["enable_prefix_caching"] is True
        assert values["api_key"] == ["c"]
        assert values["speculative_config"] == '{"method": "x"}'
        assert values["max_num_seqs"] == 4


def test_dotted_flags_change_single_keys_of_the_file(file: Path) -> None:
    values = parse_flags(SERVE, ["--config", str(file), "--speculative-config.num_speculative_tokens", "2"])
    assert values["speculative_config"] == {"method": "ngram", "num_speculative_tokens": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot: 1", "has the unknown option 'prot'; the nearest known name is 'port'."),
        ("- 1", "must hold options as key: value."),
        ("a: [", "cannot read"),
        ("a: " + "[" * 5000, "cannot read"),
    ],
)
def test_a_file_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_yaml(path, SERVE)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("")
    assert read_yaml(path, SERVE) == {}
