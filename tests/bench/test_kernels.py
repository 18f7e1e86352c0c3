"""`bench kernels` from a configuration to its file, and what it refuses."""

from __future__ import annotations

import json
import logging
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from specserve.bench import kernels
from specserve.bench.kernels import choose_cases, run
from specserve.bench.kernels_steps import Case
from specserve.bench.report import machine
from specserve.config.bench import KernelsFlags
from specserve.errors import ConfigError
from specserve.ops.probe import Probes
from tests.support.native import library
from tests.support.tiny import write_tiny

SMALL: dict[str, Any] = {
    "rows": "2,1",
    "context_len": 9,
    "input_len": 40,
    "iterations": 1,
    "num_threads": 1,
    "kv_cache_memory_bytes": "1M",
}


@pytest.fixture(autouse=True)
def _small_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "Probes", lambda pool: Probes(pool, 2**20))


def test_the_file_holds_all_figures_and_the_last_line_the_main_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library()
    file = tmp_path / "figures.json"
    run({**SMALL, "model": str(write_tiny(tmp_path)), "quantization": "int8", "json": str(file)})
    found = json.loads(file.read_text())
    assert list(found["rows"]) == list(found["steps"]) == ["1", "2"]
    assert all(isinstance(ms, float) for ms in found["rows"].values())
    for name in ("step_ms", "host_ms", "roofline_share", "read_gb_per_s"):
        assert found[name] > 0.0
    assert set(found["multiply_gmac_per_s"]) == {"float32", "int8", "int4"}
    assert (found["weight_class"], found["activation_bits"]) == ("int8", {"int8": [16]})
    assert found["runner"] == "native"
    assert found["prompt"]["num_tokens"] == 40
    assert [entry["op"] for entry in found["ops"]][:3] == ["embed", "qkv", "attention"]
    for entry in found["ops"]:
        assert list(entry["rows"]) == ["1", "2"]
    assert [(entry["weight_class"], entry["rows"]) for entry in found["exactness"]] == [
        ("int8", 1),
        ("int8", 8),
    ]
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line == {name: found[name] for name in line}
    assert {"rows", "host_ms", "roofline_share", "weight_class", "config"} <= set(line)


def test_the_file_says_in_which_circumstances(tmp_path: Path) -> None:
    library()
    file = tmp_path / "figures.json"
    run({**SMALL, "model": str(write_tiny(tmp_path)), "kv_cache_dtype": "bfloat16", "json": str(file)})
    config = json.loads(file.read_text())["config"]
    assert config["model"] == str(tmp_path)
    assert (config["num_threads"], config["kv_cache_dtype"]) == (1, "bfloat16")
    assert (config["rows"], config["context_len"], config["iterations"]) == ([2, 1], 9, 1)
    assert config["instruction_set"]
    assert set(machine()) <= set(config)


def test_an_eager_runner_tells_times_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    given = {**SMALL, "model": str(write_tiny(tmp_path)), "enforce_eager": True, "json": str(file)}
    run(given)
    found = json.loads(file.read_text())
    assert (found["runner"], found["weight_class"]) == ("eager", "float32")
    assert found["rows"]["1"] > 0.0
    assert found["host_ms"] > 0.0
    assert found["roofline_share"] is None
    assert found["ops"] == found["exactness"] == []
    assert "Eager: PyTorch ops, no native kernels." in capsys.readouterr().out


def test_speculation_has_nothing_to_say_here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    speculation = {"method": "ngram", "num_speculative_tokens": 4}
    with caplog.at_level(logging.WARNING):
        run({**SMALL, "model": str(write_tiny(tmp_path)), "speculative_config": speculation})
    assert "speculative_config has no effect here" in caplog.text


def test_a_file_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "no" / "f.json", "lies in no folder"), (tmp_path, "is a folder")):
        with pytest.raises(ConfigError, match=message):
            run({**SMALL, "model": "not looked at", "json": str(path)})


def test_cases_are_sorted_and_the_prompt_comes_last() -> None:
    flags = KernelsFlags(rows="4,1,4", context_len=16, input_len=32)
    assert choose_cases(flags, 64, 128) == [Case(1, 16), Case(4, 16), Case(32, is_prompt=True)]
    assert choose_cases(replace(flags, input_len=0), 64, 128) == [Case(1, 16), Case(4, 16)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rows": "1,65"},
            "rows=65 is more than the 64 rows a step may have; ask for fewer or raise max_num",
        ),
        (
            {"context_len": 96},
            "context_len=96 and 32 rows leave no place in max_model_len=128; lower context_len to at most 95",
        ),
        (
            {"context_len": 9, "input_len": 128},
            "input_len=128 is too long for max_model_len=128; lower it to at most 127, or to 0",
        ),
    ],
)
def test_what_the_engine_could_not_run_is_refused(options: dict[str, Any], message: str) -> None:
    given = {"context_len": 9, "input_len": 32, **options}
    with pytest.raises(ConfigError, match=message):
        choose_cases(KernelsFlags(**given), 64, 128)


def test_the_longest_context_that_is_allowed_runs(tmp_path: Path) -> None:
    """The bound is exact: the engine runs it."""
    given = {**SMALL, "max_model_len": 64, "input_len": 63, "rows": "8", "context_len": 55}
    run({**given, "model": str(write_tiny(tmp_path))})


def test_every_flag_of_the_protocol_is_there() -> None:
    names = {f.name for f in fields(KernelsFlags)}
    assert {"rows", "context_len", "input_len", "iterations", "json"} <= names
