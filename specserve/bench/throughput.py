"""How many tokens per second all questions together get, in this process.

    specserve bench throughput [MODEL] --dataset-name spec_bench --dataset-path FILE --num-prompts -1

Chat questions have the model's template around them, as a server would put it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specserve.bench.answers import Answer
from specserve.bench.asking import given_sampling, prompt_ids, read_questions
from specserve.bench.circumstances import circumstances
from specserve.bench.dataset import Question, load_questions
from specserve.bench.offline import Job, OfflineAsker, OfflineRun
from specserve.bench.offline_figures import Bandwidth, Pair, lines, offline_figures, run_pair
from specserve.bench.progress import progress
from specserve.bench.report import check_file, table_console, write_json
from specserve.bench.serve_table import category_table
from specserve.bench.serving_figures import Wanted, serving_figures
from specserve.config.bench_serving import ThroughputFlags
from specserve.config.engine import EngineConfig
from specserve.config.flags import select
from specserve.config.options import from_mapping
from specserve.config.terminal import SamplingFlags
from specserve.errors import ConfigError
from specserve.llm import LLM

logger = logging.getLogger(__name__)

WARM_UP = "warm-up"  # tenant: what is remembered of it helps nobody

Figures = dict[str, Any]


def run(values: Mapping[str, Any]) -> None:
    """Measure, print and write. Raises any `UserError`."""
    flags = from_mapping(ThroughputFlags, select(values, ThroughputFlags))
    dataset, sampling = read_questions(values)
    check_file(flags.json or flags.output_json)
    llm = LLM(**select(values, EngineConfig))
    questions = load_questions(dataset, llm.config.seed or 0, llm.deployment.tokenizer)
    bandwidth = Bandwidth(llm.deployment)
    pair = measure(llm, jobs_of(llm, questions, sampling), flags, bandwidth, hidden=dataset.disable_tqdm)
    figures = throughput_figures(llm, pair, bandwidth)
    figures["config"] = circumstances(llm.deployment, flags, dataset, sampling)
    for line in [*throughput_lines(figures), *lines(figures)]:
        print(line)
    table_console().print(category_table(figures))
    for path in (flags.json, flags.output_json):
        write_json(path, figures)


def jobs_of(llm: LLM, questions: Sequence[Question], sampling: SamplingFlags) -> list[Job]:
    """Each with a seed of its own, so that a second run draws the same."""
    params = replace(llm.get_default_sampling_params(), **given_sampling(sampling))
    return [
        Job(
            question,
            prompt_ids(question, llm.deployment.tokenizer),
            replace(params, max_tokens=question.output_len, seed=number),
        )
        for number, question in enumerate(questions)
    ]


def measure(
    llm: LLM, jobs: Sequence[Job], flags: ThroughputFlags, bandwidth: Bandwidth, *, hidden: bool
) -> Pair:
    """Raises `ConfigError` when no question could be answered."""
    asker = OfflineAsker(llm.deployment.engine)
    asker.run([replace(job, tenant=WARM_UP) for job in jobs[: flags.num_warmups]])
    baseline = flags.baseline and llm.config.speculative_config is not None
    bandwidth.probe()
    with progress(len(jobs) * (1 + baseline), "Answering", hidden=hidden) as advance:
        pair = run_pair(asker, jobs, 0, baseline=baseline, on_answer=advance)
    bandwidth.probe()
    failed = [answer for answer in pair.own.answers if answer.error]
    if failed:
        logger.warning("%d of %d questions failed: %s", len(failed), len(jobs), failed[0].error)
    if len(failed) == len(pair.own.answers):
        raise ConfigError(f"No question could be answered: {failed[0].error}")
    return pair


def throughput_figures(llm: LLM, pair: Pair, bandwidth: Bandwidth) -> Figures:
    """vLLM's names of `bench throughput`, those of `bench serve`, and ours."""
    served = serving_figures(pair.own.answers, pair.own.duration, Wanted())
    _add_speed_ups(served, pair)
    num_tokens = served["total_input_tokens"] + served["total_output_tokens"]
    return {
        "model_id": llm.config.model,
        "elapsed_time": pair.own.duration,
        "num_requests": served["completed"],
        "total_num_tokens": num_tokens,
        "requests_per_second": served["request_throughput"],
        "tokens_per_second": served["total_token_throughput"],
        **served,
        **({} if pair.plain is None else _against(pair.plain, served["output_throughput"])),
        **offline_figures(llm.deployment, pair, bandwidth),
    }


def _against(plain: OfflineRun, rate: float) -> Figures:
    plain_rate = sum(answer.num_output_tokens for answer in plain.answers) / max(plain.duration, 1e-9)
    return {"baseline_output_throughput": plain_rate, "speed_up": rate / plain_rate}


def decode_seconds(answers: Sequence[Answer]) -> float | None:
    """Mean seconds per token after the first, all tokens alike; None where no answer has two."""
    timed = [answer for answer in answers if not answer.error and answer.num_output_tokens > 1]
    num_tokens = sum(answer.num_output_tokens - 1 for answer in timed)
    return sum(answer.latency - answer.ttft for answer in timed) / num_tokens if num_tokens else None


def decode_speed_up(own: Sequence[Answer], plain: Sequence[Answer]) -> float | None:
    """How much sooner the next token comes than without speculation."""
    mine, others = decode_seconds(own), decode_seconds(plain)
    return others / mine if mine and others else None


def _add_speed_ups(found: Figures, pair: Pair) -> None:
    """To all together and to each category."""
    if pair.plain is None:
        return
    found["decode_speed_up"] = decode_speed_up(pair.own.answers, pair.plain.answers)
    for name, figures in found["categories"].items():
        own, plain = (
            [answer for answer in run.answers if answer.question.category == name]
            for run in (pair.own, pair.plain)
        )
        figures["decode_speed_up"] = decode_speed_up(own, plain)


def throughput_lines(figures: Figures) -> list[str]:
    """As vLLM prints them, then ours."""
    found = [
        f"Throughput: {figures['requests_per_second']:.2f} requests/s, "
        f"{figures['tokens_per_second']:.2f} total tokens/s, "
        f"{figures['output_throughput']:.2f} output tokens/s",
        f"Total num prompt tokens:  {figures['total_input_tokens']}",
        f"Total num output tokens:  {figures['total_output_tokens']}",
    ]
    if "speed_up" in figures:
        found.append(
            f"Speed-up over the same without speculation, prompts included: {figures['speed_up']:.2f}"
        )
    return found
