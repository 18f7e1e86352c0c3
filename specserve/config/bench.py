"""Flags of the benchmarks, described like all options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specserve.config.engine import DEFAULT_MODEL
from specserve.config.kinds import COUNT, COUNTS, INTEGER, MAPPING, TEXT, TEXTS
from specserve.config.options import option, settle
from specserve.errors import ConfigError

ROWS = (1, 2, 3, 4, 5, 8, 16, 32)
JSON = "write all figures to this file"


@dataclass(frozen=True, slots=True)
class KernelsFlags:
    """Of `bench kernels`: which steps are measured, and how often."""

    rows: tuple[int, ...] = option(
        ROWS,
        COUNTS,
        "rows of the measured steps: one known token, the rest guesses",
        like="1,2,3,4,5,8,16,32",
    )
    context_len: int = option(256, COUNT, "tokens in the cache before these rows", low=1)
    input_len: int = option(512, COUNT, "tokens of a prompt that is measured too; 0 leaves it out", low=0)
    iterations: int = option(15, COUNT, "rounds, a warm-up apart; each measures every step once", low=1)
    json: str | None = option(None, TEXT, JSON)

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, slots=True)
class OverheadFlags:
    """Of `bench overhead`."""

    model: str = option(DEFAULT_MODEL, TEXT, "as for the engine")
    steps: int = option(64, COUNT, "tokens per request", low=1)
    rounds: int = option(3, COUNT, "of each rate, a warm-up apart", low=1)
    speculative_config: Mapping[str, Any] | None = option(
        None, MAPPING, "how to guess and how to check", short="-sc", like="no speculation"
    )
    json: str | None = option(None, TEXT, JSON)

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, slots=True)
class FidelityFlags:
    """Of `bench fidelity`."""

    model: str = option(DEFAULT_MODEL, TEXT, "as for the engine")
    dataset_path: str | None = option(None, TEXT, 'JSON lines with a "prompt", asked as chats; must be given')
    classes: tuple[str, ...] = option(
        ("auto",), TEXTS, "what to measure, each CLASS[:BITS[:CACHE]], as auto int8:8 auto::float32"
    )
    num_tokens: int = option(4000, COUNT, "answer tokens to compare at", low=1)
    output_len: int = option(128, COUNT, "longest answer", low=1)
    num_threads: int | None = option(None, INTEGER, "as for the engine", low=1, high=256, like="one per core")
    json: str | None = option(None, TEXT, JSON)

    def __post_init__(self) -> None:
        settle(self)
        if self.dataset_path is None:
            raise ConfigError(
                'dataset_path is missing; name a file of JSON lines with a "prompt".', "dataset_path"
            )
