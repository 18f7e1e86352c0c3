"""Flags of the benchmarks that ask questions: what is asked, of whom, how fast, and what is reported.

The names and defaults are vLLM's where it has the option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specserve.config.bench import JSON
from specserve.config.kinds import COUNT, INTEGER, LEVEL, MAPPING, NUMBER, SWITCH, TEXT, TEXTS
from specserve.config.options import option, settle
from specserve.errors import ConfigError

CHAT = "openai-chat"
ENDPOINTS = {"openai": "/v1/completions", "vllm": "/v1/completions", CHAT: "/v1/chat/completions"}
RANDOM = "random"
DATASETS = (RANDOM, "spec_bench", "sharegpt", "custom", "humaneval")
TIMES = ("ttft", "tpot", "itl", "e2el")


@dataclass(frozen=True, slots=True)
class DatasetFlags:
    """Which questions are asked, and how long answers may be."""

    dataset_name: str = option(RANDOM, TEXT, "kind of questions: docs/bench.md", choices=DATASETS)
    dataset_path: str | None = option(None, TEXT, "their file; random needs none")
    num_prompts: int = option(1000, COUNT, "how many are asked; 0 or less: all of the file")
    disable_shuffle: bool = option(False, SWITCH, "in the file's order")
    oversample: bool = option(True, SWITCH, "begin again when the file has fewer")
    input_len: int = option(1024, COUNT, "tokens of a random prompt", low=1)
    output_len: int | None = option(
        None, COUNT, "most tokens of an answer", low=1, like="the file's; 256, random 128"
    )
    spec_bench_output_len: int | None = option(None, COUNT, "the same, for spec_bench", low=1, like="256")
    spec_bench_category: str | None = option(None, TEXT, "only questions of this category", like="all")
    disable_tqdm: bool = option(False, SWITCH, "no progress bar")

    def __post_init__(self) -> None:
        settle(self)
        if self.dataset_name != RANDOM and self.dataset_path is None:
            raise ConfigError(
                f"dataset_path is missing; name the file of {self.dataset_name}.", "dataset_path"
            )


@dataclass(frozen=True, slots=True)
class ServeFlags:
    """Whom `bench serve` asks, and how fast."""

    model: str | None = option(None, TEXT, "name of the model", like="the first of /v1/models")
    served_model_name: str | None = option(None, TEXT, "its name in requests", like="model")
    tokenizer: str | None = option(
        None, TEXT, "folder or file, for lengths and the chat template", like="the model's, if it is here"
    )
    backend: str = option("openai", TEXT, "which API", choices=tuple(ENDPOINTS))
    base_url: str | None = option(None, TEXT, "address of the server", like="http://HOST:PORT")
    host: str = option("127.0.0.1", TEXT, "the server's host")
    port: int = option(8000, INTEGER, "the server's port", low=1, high=65535)
    endpoint: str | None = option(None, TEXT, "path", like="the backend's")
    header: tuple[str, ...] = option((), TEXTS, "more headers, as KEY=VALUE")
    insecure: bool = option(False, SWITCH, "do not check the server's certificate")
    ready_check_timeout_sec: float = option(
        0.0, NUMBER, "wait this long for a first answer before measuring; 0 does not ask", low=0
    )
    num_warmups: int = option(0, COUNT, "requests before measuring begins", low=0)
    seed: int = option(0, INTEGER, "of arrivals, random prompts and the order of questions", low=0)
    max_concurrency: int | None = option(None, COUNT, "most requests at the same time", low=1, like="all")
    request_rate: float = option(float("inf"), LEVEL, "arrivals per second; inf: all at once")
    burstiness: float = option(
        1.0, NUMBER, "shape of the gaps between arrivals: 1 is Poisson, less comes in bursts"
    )
    ramp_up_strategy: str | None = option(
        None, TEXT, "let the rate grow from its start to its end", choices=("linear", "exponential")
    )
    ramp_up_start_rps: float | None = option(None, NUMBER, "arrivals per second at the beginning")
    ramp_up_end_rps: float | None = option(None, NUMBER, "arrivals per second at the end")
    logprobs: int | None = option(None, INTEGER, "logprobs per token to ask for", low=0)
    extra_body: Mapping[str, Any] | None = option(None, MAPPING, "more fields of each request")
    chat_template_kwargs: Mapping[str, Any] | None = option(None, MAPPING, "variables of the chat template")
    request_id_prefix: str | None = option(
        None, TEXT, "begins the X-Request-Id of each request", like="bench-<8 hex>-"
    )

    def __post_init__(self) -> None:
        settle(self)
        _check_rates(self)
        for header in self.header:
            if "=" not in header:
                raise ConfigError(f"header must be KEY=VALUE, got {header!r}.", "header")


@dataclass(frozen=True, slots=True)
class LaunchFlags:
    """A server that `bench serve` starts for the measurement and ends after it."""

    launch: bool = option(
        False, SWITCH, "start a server; the next three imply it, unless an address is given"
    )
    quantization: str | None = option(None, TEXT, "its weight class, as for the engine", short="-q")
    dtype: str = option("auto", TEXT, "its weights, as for the engine")
    speculative_config: Mapping[str, Any] | None = option(
        None, MAPPING, "how it guesses and checks", short="-sc", like="no speculation"
    )

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, slots=True)
class ReportFlags:
    """What `bench serve` reports, and where to."""

    percentile_metrics: str = option(
        "ttft,tpot,itl", TEXT, "times that get percentiles: ttft, tpot, itl, e2el, with commas"
    )
    metric_percentiles: str = option("99", TEXT, "which percentiles, with commas")
    goodput: tuple[str, ...] = option(
        (), TEXTS, "count requests that keep all of these, as ttft:200 tpot:50 e2el:3000 (ms)"
    )
    json: str | None = option(None, TEXT, JSON)
    save_result: bool = option(False, SWITCH, "write the figures to result_dir")
    save_detailed: bool = option(False, SWITCH, "texts and times of each request too")
    append_result: bool = option(False, SWITCH, "add a line to the file in place of writing it anew")
    result_dir: str = option(".", TEXT, "where result_filename is written")
    result_filename: str | None = option(None, TEXT, "its name", like="<label>-<rate>qps-<model>-<time>.json")
    label: str | None = option(None, TEXT, "begins the file's name", like="the backend")
    metadata: tuple[str, ...] = option((), TEXTS, "more keys of the file, as KEY=VALUE")

    def __post_init__(self) -> None:
        settle(self)
        _ = self.times, self.percentiles, self.limits  # each refuses what it cannot read
        for pair in self.metadata:
            if "=" not in pair:
                raise ConfigError(f"metadata must be KEY=VALUE, got {pair!r}.", "metadata")

    @property
    def times(self) -> tuple[str, ...]:
        names = tuple(name.strip() for name in self.percentile_metrics.split(","))
        for name in names:
            _known_time(name, "percentile_metrics")
        return names

    @property
    def percentiles(self) -> tuple[float, ...]:
        try:
            found = tuple(float(text) for text in self.metric_percentiles.split(","))
        except ValueError:
            found = (-1.0,)
        if not all(0 <= value <= 100 for value in found):
            raise ConfigError(
                f"metric_percentiles must be numbers from 0 to 100 with commas, as 50,90,99, "
                f"got {self.metric_percentiles!r}.",
                "metric_percentiles",
            )
        return found

    @property
    def limits(self) -> dict[str, float]:
        """Milliseconds by the time they are for."""
        found = {}
        for pair in self.goodput:
            name, _, text = pair.partition(":")
            _known_time(name, "goodput")
            try:
                found[name] = float(text)
            except ValueError:
                raise ConfigError(
                    f"goodput must be TIME:MILLISECONDS, as ttft:200, got {pair!r}.", "goodput"
                ) from None
        return found


@dataclass(frozen=True, slots=True)
class LatencyFlags:
    """Of `bench latency`: one batch again and again."""

    input_len: int = option(32, COUNT, "tokens of each random prompt", low=1)
    output_len: int = option(128, COUNT, "tokens of each answer", low=1)
    batch_size: int = option(8, COUNT, "prompts that run together", low=1)
    n: int = option(1, COUNT, "answers per prompt", low=1)
    temperature: float = option(1.0, NUMBER, "0 is greedy", low=0)
    num_iters_warmup: int = option(10, COUNT, "rounds before measuring", low=0)
    num_iters: int = option(30, COUNT, "rounds", low=1)
    baseline: bool = option(
        True, SWITCH, "with speculation: every other round without it, which tells the speed-up"
    )
    output_json: str | None = option(None, TEXT, "the same as json")
    json: str | None = option(None, TEXT, JSON)
    disable_tqdm: bool = option(False, SWITCH, "no progress bar")

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, slots=True)
class ThroughputFlags:
    """Of `bench throughput`: all questions at once, in this process."""

    backend: str = option("vllm", TEXT, "accepted for vLLM's command lines: this engine", choices=("vllm",))
    num_warmups: int = option(0, COUNT, "questions before measuring begins", low=0)
    baseline: bool = option(
        False, SWITCH, "with speculation: ask everything without it too, which tells the speed-up"
    )
    output_json: str | None = option(None, TEXT, "the same as json")
    json: str | None = option(None, TEXT, JSON)

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, slots=True)
class PageFlags:
    """Of `bench report`: a page from files that other benchmarks wrote."""

    output: str = option("report.html", TEXT, "file of the page")

    def __post_init__(self) -> None:
        settle(self)


def _known_time(name: str, key: str) -> None:
    if name not in TIMES:
        raise ConfigError(f"{key}: {name!r} is none of {', '.join(TIMES)}.", key)


def _check_rates(flags: ServeFlags) -> None:
    for key in ("request_rate", "burstiness"):
        if not getattr(flags, key) > 0:
            raise ConfigError(f"{key} must be above 0, got {getattr(flags, key)}.", key)
    if flags.ramp_up_strategy is None:
        return
    if flags.request_rate != float("inf"):
        raise ConfigError(
            "request_rate and ramp_up_strategy exclude each other; leave one out.", "request_rate"
        )
    for key in ("ramp_up_start_rps", "ramp_up_end_rps"):
        if not (getattr(flags, key) or 0) > 0:
            raise ConfigError(f"{key} must be above 0 with ramp_up_strategy, got {getattr(flags, key)}.", key)
