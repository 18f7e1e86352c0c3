"""`specserve bench`: which benchmark, with which flags; nothing is imported before it runs."""

from __future__ import annotations

from typing import Any

import pytest

from specserve import cli
from specserve.bench import fidelity, group, kernels, latency, overhead, page, serve, throughput
from specserve.bench.group import ANNOUNCED, BENCHMARKS, choose
from specserve.errors import ConfigError, NotBuiltYet


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_what_is_and_what_will_be(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    choose(arguments)()
    text = capsys.readouterr().out
    for name in BENCHMARKS:
        assert f"\n  {name} " in text
    for name in ANNOUNCED:
        assert f"\n  {name:12}[not built yet]\n" in text


@pytest.mark.parametrize("name", ANNOUNCED)
def test_announced_ones_say_so(name: str) -> None:
    with pytest.raises(NotBuiltYet, match=f"specserve bench {name} is not built yet"):
        choose([name, "--whatever"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("kernel", "Unknown benchmark 'kernel'; the nearest known name is 'kernels'."),
        ("kernels --row 1", "Unknown flag --row; the nearest known name is '--rows'."),
        ("kernels --rows 0,1", "rows must be a list of integers from 1 up, as 1,2,4, got '0,1'."),
        ("kernels --iterations 0", "iterations must be an integer"),
        ("kernels --dtype float8", "dtype must be one of"),
        ("fidelity m", "dataset_path is missing; name a file"),
        ("overhead --steps x", "steps must be an integer"),
        ("overhead --dtype float32", "Unknown flag --dtype"),
        ("serve --dataset-name custom", "dataset_path is missing; name the file of custom"),
        ("serve --request-rate 0", "request_rate must be above 0"),
    ],
)
def test_mistakes_are_told_before_the_benchmark_is_imported(
    line: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "import_module", None)
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        choose(line.split())


@pytest.mark.parametrize(
    ("line", "module", "values"),
    [
        (
            "kernels m -q int8 --rows 1,4 --json f --activation-bits 16",
            kernels,
            {"model": "m", "quantization": "int8", "rows": "1,4", "json": "f", "activation_bits": "16"},
        ),
        (
            "fidelity --dataset-path f --classes auto int8:8",
            fidelity,
            {"dataset_path": "f", "classes": ["auto", "int8:8"]},
        ),
        (
            "serve --backend openai-chat --endpoint /v1/chat/completions --model Qwen/Qwen3-8B "
            "--dataset-name spec_bench --dataset-path q.jsonl --num-prompts -1 --max-concurrency 1",
            serve,
            {
                "backend": "openai-chat",
                "endpoint": "/v1/chat/completions",
                "model": "Qwen/Qwen3-8B",
                "dataset_name": "spec_bench",
                "dataset_path": "q.jsonl",
                "num_prompts": "-1",
                "max_concurrency": "1",
            },
        ),
        (
            "serve m -q int8 --dtype auto --no-oversample --goodput ttft:9 tpot:5 --spec-method ngram",
            serve,
            {
                "model": "m",
                "quantization": "int8",
                "dtype": "auto",
                "oversample": False,
                "goodput": ["ttft:9", "tpot:5"],
                "speculative_config": {"method": "ngram"},
            },
        ),
        (
            "latency m -q int8 -sc {} --batch-size 1 --no-baseline",
            latency,
            {
                "model": "m",
                "quantization": "int8",
                "speculative_config": "{}",
                "batch_size": "1",
                "baseline": False,
            },
        ),
        (
            "throughput m --dtype float32 --backend vllm --dataset-name custom --dataset-path f --seed 3",
            throughput,
            {
                "model": "m",
                "dtype": "float32",
                "backend": "vllm",
                "dataset_name": "custom",
                "dataset_path": "f",
                "seed": "3",
            },
        ),
        ("report a.json b.json --output f", page, {"files": ["a.json", "b.json"], "output": "f"}),
        ("overhead --steps 96 --rounds 5", overhead, {"steps": "96", "rounds": "5"}),
        (
            "overhead m --spec-method ngram --spec-tokens 4",
            overhead,
            {"model": "m", "speculative_config": {"method": "ngram", "num_speculative_tokens": 4}},
        ),
    ],
)
def test_the_command_line_reaches_the_benchmark(
    line: str, module: Any, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "run", asked.append)
    monkeypatch.setattr(cli, "_start_logging", lambda: None)
    assert cli.main(["bench", *line.split()]) == 0
    assert asked == [values]
