"""From answers to figures, by vLLM's names: rates, times with percentiles, acceptance, per category again.

A category's duration is the time in which at least one of its requests ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from operator import add
from typing import Any

import numpy as np

from specserve.bench.acceptance import Acceptance
from specserve.bench.answers import Answer

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Percentiles of the times, and the milliseconds below which a request counts as good."""

    percentiles: tuple[float, ...] = (99.0,)
    limits: Mapping[str, float] | None = None


def serving_figures(
    answers: Sequence[Answer], duration: float, wanted: Wanted, *, acceptance: Acceptance | None = None
) -> Figures:
    """`acceptance` is the server's; without it, what the answers say themselves."""
    categories = dict.fromkeys(answer.question.category for answer in answers)
    found = _figures(answers, duration, wanted, acceptance)
    found["categories"] = {
        name: _figures(own, _covered(own), wanted, None)
        for name in categories
        if (own := [answer for answer in answers if answer.question.category == name])
    }
    return found


def percentile_name(percentile: float, time: str) -> str:
    return f"p{percentile:g}_{time}_ms"


def digest(answers: Sequence[Answer]) -> Figures:
    """SHA-256 of all answers in order, each behind its length: of ids, or of texts if not all tell ids."""
    sha = sha256()
    has_ids = all(answer.ids is not None for answer in answers)
    for answer in answers:
        data = np.array(answer.ids, "<i8").tobytes() if has_ids else answer.text.encode()
        sha.update(len(data).to_bytes(8, "little") + data)
    return {"output_sha256": sha.hexdigest(), "output_sha256_of": "ids" if has_ids else "texts"}


def _figures(
    answers: Sequence[Answer], duration: float, wanted: Wanted, acceptance: Acceptance | None
) -> Figures:
    done = [answer for answer in answers if not answer.error]
    seconds = max(duration, 1e-9)
    num_input = sum(answer.num_prompt_tokens for answer in done)
    num_output = sum(answer.num_output_tokens for answer in done)
    own = [answer.acceptance for answer in done if answer.acceptance is not None]
    acceptance = acceptance or (reduce(add, own) if own else None)
    return {
        "duration": duration,
        "completed": len(done),
        "failed": len(answers) - len(done),
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": len(done) / seconds,
        "request_goodput": _num_good(done, wanted.limits) / seconds if wanted.limits else None,
        "output_throughput": num_output / seconds,
        "total_token_throughput": (num_input + num_output) / seconds,
        "max_output_tokens_per_s": _peak_rate(done),
        "max_concurrent_requests": _peak_concurrency(done),
        **_times(done, wanted.percentiles),
        **(acceptance.figures() if acceptance is not None else {}),
        **digest(answers),
    }


def _times(done: Sequence[Answer], percentiles: Sequence[float]) -> Figures:
    found: Figures = {}
    samples = {
        "ttft": [answer.ttft for answer in done],
        "tpot": [tpot for answer in done if (tpot := answer.tpot) is not None],
        "itl": [itl for answer in done for itl in answer.itls],
        "e2el": [answer.latency for answer in done],
    }
    for name, seconds in samples.items():
        ms = 1e3 * np.array(seconds or [0.0])
        found |= {
            f"mean_{name}_ms": float(ms.mean()),
            f"median_{name}_ms": float(np.median(ms)),
            f"std_{name}_ms": float(ms.std()),
        }
        found |= {percentile_name(p, name): float(np.percentile(ms, p)) for p in percentiles}
    return found


def _num_good(done: Sequence[Answer], limits: Mapping[str, float]) -> int:
    """An answer without a time per token, or between chunks, keeps that limit."""
    return sum(all(_own_ms(answer, name) <= limit for name, limit in limits.items()) for answer in done)


def _own_ms(answer: Answer, name: str) -> float:
    seconds = {
        "ttft": answer.ttft,
        "tpot": answer.tpot or 0.0,
        "itl": max(answer.itls, default=0.0),
        "e2el": answer.latency,
    }
    return 1e3 * seconds[name]


def _peak_rate(done: Sequence[Answer]) -> float:
    """Most tokens in one second of the run, a chunk counting as many as its answer's chunks have on average:
    counting it as one would hide what speculation does."""
    seconds: dict[int, float] = {}
    for answer in done:
        for chunk in answer.chunks:
            share = answer.num_output_tokens / len(answer.chunks)
            seconds[int(chunk)] = seconds.get(int(chunk), 0.0) + share
    return max(seconds.values(), default=0.0)


def _peak_concurrency(done: Sequence[Answer]) -> int:
    ends = sorted([(a.ended, -1) for a in done] + [(a.sent, 1) for a in done])  # an end before a beginning
    running = peak = 0
    for _, change in ends:
        running += change
        peak = max(peak, running)
    return peak


def _covered(answers: Sequence[Answer]) -> float:
    """Seconds in which at least one of them ran."""
    total, until = 0.0, 0.0
    for answer in sorted(answers, key=lambda answer: answer.sent):
        total += max(answer.ended - max(answer.sent, until), 0.0)
        until = max(until, answer.ended)
    return total
