"""From runs of an engine in this process to figures: steps, memory, acceptance, factors of the speed-up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from statistics import median
from typing import Any

from specserve.bench.circumstances import classes_of
from specserve.bench.kernels_counts import StepShape, Work, step_works
from specserve.bench.kernels_steps import in_turn, program_of
from specserve.bench.offline import Job, OfflineAsker, OfflineRun
from specserve.bench.serving_figures import digest
from specserve.bench.step_costs import StepCosts, decompose, step_costs
from specserve.engine.build import Deployment
from specserve.ops.probe import Probes
from specserve.ops.program import Op

logger = logging.getLogger(__name__)

PLAIN = "plain"  # tenant of the runs without speculation: nobody learns from them
DRIFT = 0.1  # of the read bandwidth, from its lowest to its highest probe
NUM_PROBES = 3

Figures = dict[str, Any]


@dataclass(slots=True)
class Pair:
    """The run as configured, and the same without speculation, if that was asked for."""

    own: OfflineRun = field(default_factory=OfflineRun)
    plain: OfflineRun | None = None


class Bandwidth:
    """Probes of the read bandwidth between runs, bytes per second; none without native kernels."""

    def __init__(self, deployment: Deployment) -> None:
        program = program_of(deployment.engine)
        self._probes = None if program is None else Probes(program.pool)
        self.rates: list[float] = []

    def probe(self) -> None:
        if self._probes is not None:
            self.rates.append(max(self._probes.read() for _ in range(NUM_PROBES)))


def run_pair(
    asker: OfflineAsker,
    jobs: Sequence[Job],
    number: int,
    *,
    baseline: bool,
    on_answer: Callable[[], None] | None = None,
) -> Pair:
    """Both runs of the same jobs. Which comes first changes with `number`, so that a change in the machine's
    mood hits both alike."""
    pair = Pair(plain=OfflineRun() if baseline else None)
    for is_plain in in_turn([False, True] if baseline else [False], number):
        run = asker.run([plain(job) for job in jobs] if is_plain else jobs, on_answer)
        if is_plain:
            pair.plain = run
        else:
            pair.own = run
    return pair


def plain(job: Job) -> Job:
    """The same without speculation, for nobody to learn from."""
    params = replace(job.params, speculation={"enabled": False})
    return Job(job.question, job.prompt, params, PLAIN + job.tenant)


def offline_figures(deployment: Deployment, pair: Pair, bandwidth: Bandwidth) -> Figures:
    """All that does not depend on what was asked."""
    own = step_costs(pair.own.steps)
    base = None if pair.plain is None else step_costs(pair.plain.steps)
    is_plain = deployment.speculative is None
    accepted = [answer.acceptance for answer in pair.own.answers if answer.acceptance is not None]
    return {
        **classes_of(deployment),
        **(own.figures() if own is not None else {}),
        **_memory(deployment, own if is_plain else base, pair, bandwidth),
        **(reduce(add, accepted).figures() if accepted else {}),
        **digest(pair.own.answers),
        **_comparison(pair, own, base),
    }


def _comparison(pair: Pair, own: StepCosts | None, base: StepCosts | None) -> Figures:
    if pair.plain is None:
        return {}
    couples = list(zip(pair.own.answers, pair.plain.answers, strict=True))
    return {
        "baseline": base.figures() if base is not None else {},
        "decomposition": decompose(own, base) if own is not None and base is not None else None,
        "text_kept": sum(a.ids == b.ids for a, b in couples) / len(couples) if couples else None,
    }


def _memory(deployment: Deployment, costs: StepCosts | None, pair: Pair, bandwidth: Bandwidth) -> Figures:
    """Against the roof: what plain steps read, over what could be read in their time."""
    program = program_of(deployment.engine)
    if program is None or not bandwidth.rates:
        return {"read_gb_per_s": None, "roofline_share": None}
    rate, low, high = median(bandwidth.rates), min(bandwidth.rates), max(bandwidth.rates)
    if high - low > DRIFT * high:
        logger.warning(
            "The machine was not steady: reading went at %.1f to %.1f GB/s.", low / 1e9, high / 1e9
        )
    found: Figures = {
        "read_gb_per_s": rate / 1e9,
        "read_gb_per_s_range": [low / 1e9, high / 1e9],
        "roofline_share": None,
    }
    if costs is not None:
        num_bytes = step_bytes(program.ops, costs.sequences_per_step, mean_context(pair.own))
        found["roofline_share"] = num_bytes / rate / (costs.step_ms / 1e3)
    return found


def mean_context(run: OfflineRun) -> int:
    """Tokens in the cache in the middle of an answer."""
    lengths = [a.num_prompt_tokens + a.num_output_tokens // 2 for a in run.answers if not a.error]
    return sum(lengths) // len(lengths) if lengths else 0


def step_bytes(ops: Sequence[Op], num_sequences: float, context: int) -> float:
    """Weights once, keys and values of each sequence's `context` tokens."""
    alone, behind = (
        sum(step_works(ops, StepShape(start, start + 1, 1)), Work()).num_bytes for start in (0, context)
    )
    return alone + num_sequences * (behind - alone)


def lines(figures: Mapping[str, Any]) -> list[str]:
    """The same for people."""
    found = [f"Weight class: {figures['weight_class']}"]
    if "step_ms" in figures:
        host = "" if figures["host_ms"] is None else f", host {figures['host_ms']:.2f}"
        found.append(
            f"Steps: {figures['step_ms']:.2f} ms (target {figures['target_ms']:.2f}, draft "
            f"{figures['draft_ms']:.2f}, verify {figures['verify_ms']:.2f}{host}), "
            f"{figures['tokens_per_step']:.2f} tokens per sequence each"
        )
    if figures["roofline_share"] is not None:
        found.append(
            f"Memory: {figures['read_gb_per_s']:.1f} GB/s; without speculation steps reach "
            f"{100 * figures['roofline_share']:.0f} % of it"
        )
    if "spec_decode_acceptance_length" in figures:
        rates = " ".join(f"{100 * rate:.0f}" for rate in figures["acceptance_per_position"])
        found.append(
            f"Acceptance length: {figures['spec_decode_acceptance_length']:.2f}; by position, %: {rates}"
        )
    if figures.get("decomposition"):
        found.append(_factors(figures["decomposition"]))
    if figures.get("text_kept") is not None:
        found.append(f"Answers that are the same without speculation: {100 * figures['text_kept']:.0f} %")
    return found


def _factors(parts: Mapping[str, float]) -> str:
    return (
        f"Speed-up of decoding: {parts['speed_up']:.2f} = acceptance {parts['acceptance']:.2f} x batch "
        f"{parts['batch']:.2f} x plain step {parts['plain_cost']:.2f} / (verification "
        f"{parts['verification_cost']:.2f} + draft {parts['draft_cost']:.2f} + host {parts['host_cost']:.2f})"
    )
