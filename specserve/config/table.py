"""The page docs/options.md, from the options themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from specserve.config.bench import FidelityFlags, KernelsFlags, OverheadFlags
from specserve.config.bench_serving import (
    DatasetFlags,
    LatencyFlags,
    LaunchFlags,
    ReportFlags,
    ServeFlags,
    ThroughputFlags,
)
from specserve.config.engine import EngineConfig
from specserve.config.options import Option, default_text, flag
from specserve.config.server import ServerConfig
from specserve.config.shorthands import SpeculativeFlags
from specserve.config.speculative import SpeculativeConfig
from specserve.config.terminal import ChatFlags, GenerateFlags, SamplingFlags

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

HEAD = """\
# Options

This page is generated: edit the fields in `specserve/config/`.

A flag may be spelled with `_` or `-`. Its name without `--` and with `_` is the key in a YAML file
(`--config FILE`; the command line wins) and, for the engine, the keyword of `LLM(...)`. A switch is written
`--flag` or `--no-flag`. JSON can be given whole (`-sc '{"method": "ngram"}'`) or key by key
(`--speculative-config.method ngram`; a `+` after the key appends to a list). Counts may end in k, m, g
(thousands) or K, M, G (1024s). What is marked *announced* parses and answers "not built yet".
"""
SECTIONS: tuple[tuple[str, str, type[DataclassInstance], bool], ...] = (
    ("Engine", "For `serve`, `generate`, `chat`, `check` and `LLM`.", EngineConfig, True),
    (
        "Speculation",
        "The keys of `--speculative-config`, which is a JSON object. One that belongs to another method or "
        "rule is taken with a warning.",
        SpeculativeConfig,
        False,
    ),
    ("Speculation in short", "Flags for single keys of it.", SpeculativeFlags, True),
    ("Server", "For `serve`.", ServerConfig, True),
    ("Sampling", "For `generate`, `chat`, `bench serve` and `bench throughput`.", SamplingFlags, True),
    ("Generate", "For `generate`.", GenerateFlags, True),
    ("Chat", "For `chat`.", ChatFlags, True),
    ("Bench serve", "For `bench serve`, beside Sampling.", ServeFlags, True),
    ("Bench report", "For `bench serve`.", ReportFlags, True),
    ("Bench launch", "For `bench serve`.", LaunchFlags, True),
    ("Bench datasets", "For `bench serve` and `bench throughput`.", DatasetFlags, True),
    ("Bench latency", "For `bench latency`, beside those of the engine.", LatencyFlags, True),
    ("Bench throughput", "For `bench throughput`, beside those of the engine.", ThroughputFlags, True),
    ("Bench kernels", "For `bench kernels`, beside those of the engine.", KernelsFlags, True),
    ("Bench fidelity", "For `bench fidelity`.", FidelityFlags, True),
    ("Bench overhead", "For `bench overhead`.", OverheadFlags, True),
)
ENVIRONMENT = """
## Environment

| variable | meaning |
|---|---|
| `VLLM_API_KEY` | key clients must bring, when `--api-key` is not given |
| `VLLM_CPU_KVCACHE_SPACE` | GiB for the cache on a CPU, when `--kv-cache-memory-bytes` is not given |
| `VLLM_LOG_STATS_INTERVAL` | seconds between lines of statistics in the log; 10 |
| `VLLM_LOGGING_LEVEL` | what is logged; INFO |
| `VLLM_USE_V2_MODEL_RUNNER` | accepted and without effect: there is one model runner |
| `OPENAI_API_KEY` | key of `specserve chat --url` and `specserve bench serve` |
"""


def markdown() -> str:
    """All options in one page; a script compares it with docs/options.md."""
    return HEAD + "".join(_section(*section) for section in SECTIONS) + ENVIRONMENT


def _section(title: str, intro: str, config: type[DataclassInstance], are_flags: bool) -> str:
    head = f"\n## {title}\n\n{intro}\n\n| {'flag' if are_flags else 'key'} | value | default | meaning |\n"
    return head + "|---|---|---|---|\n" + "".join(_rows(config, are_flags))


def _rows(config: type[DataclassInstance], are_flags: bool) -> Iterator[str]:
    for f in fields(config):
        if "option" in f.metadata:
            described: Option = f.metadata["option"]
            name = flag(f.name) if are_flags else f.name
            names = ", ".join(f"`{n}`" for n in (name, described.short) if n)
            cells = (names, _values(described), default_text(f), _meaning(described))
            yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"


def _values(option: Option) -> str:
    if option.choices or option.announced:
        return ", ".join(f"`{choice}`" for choice in option.choices + option.announced)
    bounds = [f"≥ {option.low:g}"] if option.low is not None else []
    bounds += [f"≤ {option.high:g}"] if option.high is not None else []
    return " ".join([option.kind.metavar, *bounds])


def _meaning(option: Option) -> str:
    if not option.is_built:
        return f"*announced:* {option.help}"
    if option.announced:
        return f"{option.help}; *announced:* {', '.join(option.announced)}"
    return option.help
