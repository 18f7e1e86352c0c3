"""How long one batch takes, again and again, in this process.

    specserve bench latency [MODEL] [--batch-size 8] [--input-len 32] [--output-len 128] [-sc JSON]

Every round has prompts of its own, so that nothing remembered from an earlier one helps. With speculation
each round runs once more without it, which tells the speed-up and its factors.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from specserve.bench.circumstances import circumstances
from specserve.bench.dataset import NOISE, Question, random_ids
from specserve.bench.offline import Job, OfflineAsker, OfflineRun
from specserve.bench.offline_figures import Bandwidth, Pair, lines, offline_figures, run_pair
from specserve.bench.progress import progress
from specserve.bench.report import check_file, write_json
from specserve.config.bench_serving import RANDOM, LatencyFlags
from specserve.config.engine import EngineConfig
from specserve.config.flags import select
from specserve.config.options import from_mapping
from specserve.errors import ConfigError
from specserve.llm import LLM
from specserve.types import SamplingParams

logger = logging.getLogger(__name__)

PERCENTILES = (10, 25, 50, 75, 90, 99)

Figures = dict[str, Any]


def run(values: Mapping[str, Any]) -> None:
    """Measure, print and write. Raises any `UserError`."""
    flags = from_mapping(LatencyFlags, select(values, LatencyFlags))
    check_file(flags.json or flags.output_json)
    llm = LLM(**{"enable_prefix_caching": False, **select(values, EngineConfig)})
    if llm.config.speculative_config is not None:
        logger.warning(NOISE.format("Prompts here are noise"))
    bandwidth = Bandwidth(llm.deployment)
    pairs = measure(OfflineAsker(llm.deployment.engine), llm, flags, bandwidth)
    figures = {
        "model_id": llm.config.model,
        **latency_figures(pairs),
        **offline_figures(llm.deployment, gathered(pairs), bandwidth),
        "config": circumstances(llm.deployment, flags),
    }
    for line in [*latency_lines(figures), *lines(figures)]:
        print(line)
    for path in (flags.json, flags.output_json):
        write_json(path, figures)


def measure(asker: OfflineAsker, llm: LLM, flags: LatencyFlags, bandwidth: Bandwidth) -> list[Pair]:
    """One pair per round. Raises `ConfigError` when a prompt cannot be answered."""
    baseline = flags.baseline and llm.config.speculative_config is not None
    vocab_size = llm.deployment.tokenizer.vocab_size
    pairs: list[Pair] = []
    total = flags.num_iters_warmup + flags.num_iters
    with progress(total, "Rounds", hidden=flags.disable_tqdm) as advance:
        for number in range(total):
            is_warm_up = number < flags.num_iters_warmup
            pair = run_pair(asker, round_jobs(flags, vocab_size, number), number, baseline=baseline)
            _refuse_failure(pair)
            if not is_warm_up:
                bandwidth.probe()
                pairs.append(pair)
            advance()
    return pairs


def round_jobs(flags: LatencyFlags, vocab_size: int, number: int) -> list[Job]:
    """The batch of a round: random prompts, and a seed for each, so that a second run draws the same."""
    random = Random(number)
    jobs = []
    for index in range(flags.batch_size):
        ids = random_ids(random, vocab_size, flags.input_len)
        params = SamplingParams(
            n=flags.n,
            temperature=flags.temperature,
            seed=number * flags.batch_size + index,
            max_tokens=flags.output_len,
            ignore_eos=True,
        )
        jobs.append(Job(Question("", RANDOM, flags.output_len, tuple(ids), is_chat=False), ids, params))
    return jobs


def latency_figures(pairs: Sequence[Pair]) -> Figures:
    """Seconds of whole rounds, by vLLM's names."""
    own = np.array([pair.own.duration for pair in pairs])
    plain = [pair.plain.duration for pair in pairs if pair.plain is not None]
    found: Figures = {
        "avg_latency": float(own.mean()),
        "latencies": own.tolist(),
        "percentiles": {str(p): float(np.percentile(own, p)) for p in PERCENTILES},
        "output_throughput": sum(_num_output(pair) for pair in pairs) / float(own.sum()),
    }
    if plain:
        found |= {"baseline_latencies": plain, "speed_up": sum(plain) / float(own.sum())}
    return found


def latency_lines(figures: Figures) -> list[str]:
    """As vLLM prints them, then ours."""
    found = [f"Avg latency: {figures['avg_latency']} seconds"]
    found += [f"{p}% percentile latency: {figures['percentiles'][str(p)]} seconds" for p in PERCENTILES]
    if "speed_up" in figures:
        found.append(
            f"Speed-up over the same without speculation, prompts included: {figures['speed_up']:.2f}"
        )
    return found


def gathered(pairs: Sequence[Pair]) -> Pair:
    """All rounds as one run."""
    whole = Pair()
    for pair in pairs:
        whole.own.add(pair.own)
        if pair.plain is not None:
            whole.plain = whole.plain or OfflineRun()
            whole.plain.add(pair.plain)
    return whole


def _num_output(pair: Pair) -> int:
    return sum(answer.num_output_tokens for answer in pair.own.answers)


def _refuse_failure(pair: Pair) -> None:
    for answer in pair.own.answers:
        if answer.error:
            raise ConfigError(f"A prompt of the batch cannot be answered: {answer.error}")
