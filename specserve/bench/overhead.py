"""What a step costs beyond arithmetic, and what the server costs beyond the engine.

    specserve bench overhead [MODEL] [-sc JSON] [--steps N] [--rounds N]

*Overhead* is a step's wall time less the time inside ops: planning, batches, verdicts, commits, text, and
the Python between two ops of the model. Only steps in which every request decodes are counted. *Served* is
the rate of streams over HTTP from a server in a process of its own, against the offline API with the same
prompts; the two alternate, so that a change in the machine's mood hits both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from statistics import median, quantiles
from time import monotonic, perf_counter
from typing import Any

import torch

from specserve.bench.report import check_file, machine, write_json
from specserve.bench.streams import Server, stream
from specserve.config.bench import OverheadFlags
from specserve.config.engine import EngineConfig, engine_config
from specserve.config.options import from_mapping
from specserve.engine.build import build
from specserve.engine.engine import Engine
from specserve.llm import LLM
from specserve.ops import OpTimer
from specserve.types import Request, SamplingParams

NUM_PROMPT_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Overhead:
    """Milliseconds of one step; `ops_ms` and `step_ms` are medians too."""

    num_requests: int
    num_steps: int
    median_ms: float
    p90_ms: float
    p99_ms: float
    ops_ms: float
    step_ms: float


@dataclass(frozen=True, slots=True)
class Served:
    """Tokens per second, medians over the rounds."""

    num_streams: int
    offline: float
    served: float
    share: float  # served / offline


def prompts(seed: int, count: int, vocab_size: int) -> list[list[int]]:
    """Random words: the same for a seed, hardly guessable, and no page in common."""
    random = Random(seed)
    words = range(vocab_size // 32, vocab_size // 16)  # ordinary ones in a vocabulary of some size
    return [random.choices(words, k=NUM_PROMPT_TOKENS) for _ in range(count)]


def params(num_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)


def measure_overhead(engine: Engine, timer: OpTimer, num_requests: int, num_tokens: int) -> Overhead:
    """Let `num_requests` decode `num_tokens` each. What it costs to time an op counts as overhead."""
    vocab_size = engine.runner.model.vocab_size
    for number, prompt in enumerate(prompts(num_requests, num_requests, vocab_size)):
        engine.add(Request(f"overhead-{number}", prompt, params(num_tokens), monotonic()))
    samples = []
    while engine.has_work:
        timer.reset()
        began = perf_counter()
        stats = engine.step().stats
        ended = perf_counter()
        if stats.num_emitting == num_requests and not stats.finished:
            samples.append((ended - began, timer.seconds))
    return _summarise(num_requests, samples)


def _summarise(num_requests: int, samples: list[tuple[float, float]]) -> Overhead:
    overheads = [1e3 * (step - ops) for step, ops in samples]
    percentiles = quantiles(overheads, n=100, method="inclusive")
    return Overhead(
        num_requests,
        len(samples),
        median_ms=median(overheads),
        p90_ms=percentiles[89],
        p99_ms=percentiles[98],
        ops_ms=median(1e3 * ops for _, ops in samples),
        step_ms=median(1e3 * step for step, _ in samples),
    )


def measure_served(llm: LLM, server: Server, num_streams: int, num_tokens: int, num_rounds: int) -> Served:
    """Prompts differ from round to round, so that no round finds the pages of another."""
    vocab_size = llm.deployment.engine.runner.model.vocab_size
    offline, served = [], []
    for number in range(num_rounds + 1):  # the first round warms both up
        given = prompts(1000 * num_streams + number, num_streams, vocab_size)
        offline.append(_rate(partial(_offline, llm, given, num_tokens)))
        served.append(_rate(partial(stream, server.port, given, num_tokens)))
    before, after = median(offline[1:]), median(served[1:])
    return Served(num_streams, before, after, after / before)


def _offline(llm: LLM, given: list[list[int]], num_tokens: int) -> int:
    return sum(len(result.outputs[0].token_ids) for result in llm.generate(given, params(num_tokens)))


def _rate(generate: Callable[[], int]) -> float:
    began = perf_counter()
    num_tokens = generate()
    return num_tokens / (perf_counter() - began)


def run_overhead(config: EngineConfig, num_tokens: int) -> list[Overhead]:
    timer = OpTimer()
    engine = build(config, is_offline=True, timer=timer).engine
    measure_overhead(engine, timer, 1, 8)  # pays for everything lazy
    print("overhead of a step: requests, steps | median, p90, p99 ms | median ops, step ms")
    results = [measure_overhead(engine, timer, count, num_tokens) for count in (1, 32)]
    for one in results:
        print(
            f"{one.num_requests:4d} {one.num_steps:6d} | {one.median_ms:8.3f} {one.p90_ms:8.3f} "
            f"{one.p99_ms:8.3f} | {one.ops_ms:8.2f} {one.step_ms:8.2f}"
        )
    return results


def run_served(config: EngineConfig, num_tokens: int, num_rounds: int) -> list[Served]:
    print("tokens per second: streams | offline, served | served / offline")
    with Server(config) as server:
        llm = LLM(config.model, speculative_config=config.speculative_config)
        results = [measure_served(llm, server, count, num_tokens, num_rounds) for count in (1, 16)]
    for one in results:
        print(f"{one.num_streams:4d} | {one.offline:8.1f} {one.served:8.1f} | {one.share:8.2f}")
    return results


def run(values: Mapping[str, Any]) -> None:
    """Measure both and print; the last line is JSON. Raises any `UserError`."""
    flags = from_mapping(OverheadFlags, values)
    config = engine_config({"model": flags.model, "seed": 0, "speculative_config": flags.speculative_config})
    check_file(flags.json)
    overhead = [asdict(one) for one in run_overhead(config, flags.steps)]
    served = [asdict(one) for one in run_served(config, flags.steps, flags.rounds)]
    figures = {"overhead": overhead, "served": served, "config": _circumstances(flags)}
    print(json.dumps(figures))
    write_json(flags.json, figures)


def _circumstances(flags: OverheadFlags) -> dict[str, Any]:
    given = {name: value for name, value in asdict(flags).items() if name != "json"}
    return {**given, "torch_threads": torch.get_num_threads(), **machine()}
