"""What all benchmarks share in reporting: medians with their spread, circumstances, files."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from rich.console import Console

from specserve import __version__
from specserve.errors import ConfigError

WIDTH = 120  # where the output is no terminal, which would say how wide it is


def middle(samples: Sequence[float]) -> tuple[float, list[float]]:
    """The median, and the quartiles around it: half of the samples lie between them."""
    if len(samples) < 2:
        return samples[0], [samples[0], samples[0]]
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return median(samples), [low, high]


def table_console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def machine() -> dict[str, Any]:
    return {
        "specserve": __version__,
        "torch": torch.__version__,
        "cpu": _cpu_name(),
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
    }


def check_file(path: str | None) -> None:
    """Raises `ConfigError` for a file that could not be written, before anything was measured for it."""
    if path is None:
        return
    if Path(path).is_dir():
        raise ConfigError(f"json={path!r} is a folder; name a file.", "json")
    if not Path(path).absolute().parent.is_dir():
        raise ConfigError(f"json={path!r} lies in no folder that exists; make it first.", "json")


def write_json(path: str | None, document: Mapping[str, Any]) -> None:
    if path is None:
        return
    try:
        Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"json={path!r} cannot be written ({error.strerror}).", "json") from None


def _cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
