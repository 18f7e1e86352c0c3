"""The benchmarks behind `specserve bench`. One imports what it needs when it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from specserve.config.bench import FidelityFlags, KernelsFlags, OverheadFlags
from specserve.config.bench_serving import (
    DatasetFlags,
    LatencyFlags,
    LaunchFlags,
    PageFlags,
    ReportFlags,
    ServeFlags,
    ThroughputFlags,
)
from specserve.config.engine import EngineConfig
from specserve.config.flags import Command, parse_flags, select
from specserve.config.options import from_mapping, nearest
from specserve.config.shorthands import SpeculativeFlags, fold_shorthands
from specserve.config.terminal import SamplingFlags
from specserve.errors import ConfigError, NotBuiltYet

# Name -> module with a function `run(values)`, and its flags.
BENCHMARKS: Mapping[str, tuple[str, Command]] = {
    "serve": (
        "specserve.bench.serve",
        Command(
            "bench serve",
            "How a server answers questions: rates, times, acceptance.",
            (ServeFlags, DatasetFlags, SamplingFlags, ReportFlags, LaunchFlags, SpeculativeFlags),
            "model",
        ),
    ),
    "latency": (
        "specserve.bench.latency",
        Command(
            "bench latency",
            "How long one batch takes in this process, with and without speculation.",
            (LatencyFlags, EngineConfig, SpeculativeFlags),
            "model",
        ),
    ),
    "throughput": (
        "specserve.bench.throughput",
        Command(
            "bench throughput",
            "Tokens per second of many questions in this process.",
            (ThroughputFlags, DatasetFlags, SamplingFlags, EngineConfig, SpeculativeFlags),
            "model",
        ),
    ),
    "report": (
        "specserve.bench.page",
        Command(
            "bench report",
            "A page with plots, from the files of other benchmarks.",
            (PageFlags,),
            "files",
            takes_many=True,
        ),
    ),
    "kernels": (
        "specserve.bench.kernels",
        Command(
            "bench kernels",
            "Times of target steps by number of rows, whole and op by op, against what the machine gives.",
            (KernelsFlags, EngineConfig, SpeculativeFlags),
            "model",
        ),
    ),
    "fidelity": (
        "specserve.bench.fidelity",
        Command(
            "bench fidelity",
            "What rounding costs: weight classes against float32 of the same weights.",
            (FidelityFlags,),
            "model",
        ),
    ),
    "overhead": (
        "specserve.bench.overhead",
        Command(
            "bench overhead",
            "What a step costs beyond arithmetic, and the server beyond the engine.",
            (OverheadFlags, SpeculativeFlags),
            "model",
        ),
    ),
}
HELP = """\
usage: specserve bench BENCHMARK [options]

{benchmarks}

specserve bench BENCHMARK --help says more.
"""
ANNOUNCED = ("compare",)


def choose(arguments: Sequence[str]) -> Callable[[], None]:
    """What the arguments ask for, ready to run. Raises `ConfigError` or `NotBuiltYet`."""
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        return partial(print, _help(), end="")
    if name in ANNOUNCED:
        raise NotBuiltYet(f"specserve bench {name}")
    if name not in BENCHMARKS:
        raise ConfigError(f"Unknown benchmark {name!r}; {nearest(name, [*BENCHMARKS, *ANNOUNCED])}")
    module, command = BENCHMARKS[name]
    values = fold_shorthands(parse_flags(command, arguments[1:]))
    for config in command.configs:
        from_mapping(config, select(values, config))  # a mistake is told before torch is imported
    return partial(_run, module, values)


def _run(module: str, values: Mapping[str, Any]) -> None:
    import_module(module).run(values)


def _help() -> str:
    lines = [f"  {name:12}{command.help}" for name, (_, command) in BENCHMARKS.items()]
    lines += [f"  {name:12}[not built yet]" for name in ANNOUNCED]
    return HELP.format(benchmarks="\n".join(lines))
