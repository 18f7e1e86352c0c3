"""One reply at a time, timed: what the experiments about drafters have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from specserve import LLM, SamplingParams
from specserve.types import SpecDecodeMetrics

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Reply:
    """`seconds` are those after the first token; `num_steps` the target's, the prompt's own left out."""

    ids: list[int]
    text: str
    seconds: float
    num_steps: int
    metrics: SpecDecodeMetrics | None

    @property
    def num_decoded(self) -> int:
        return len(self.ids) - 1


def ask(llm: LLM, prompt: str | Messages, params: SamplingParams) -> Reply:
    outputs = list(llm.stream(prompt, params))
    stats = outputs[-1].stats
    assert stats is not None
    return Reply(
        [token for output in outputs for token in output.token_ids],
        "".join(output.text for output in outputs),
        stats.last_token - stats.first_token,
        len(outputs) - 1,
        outputs[-1].spec_decode_metrics,
    )


def rate(replies: Sequence[Reply]) -> float:
    """Tokens per second of decoding, all replies together."""
    return sum(reply.num_decoded for reply in replies) / sum(reply.seconds for reply in replies)


def tokens_per_step(replies: Sequence[Reply]) -> float:
    return sum(reply.num_decoded for reply in replies) / sum(reply.num_steps for reply in replies)


def speed_ups(replies: Sequence[Reply], others: Sequence[Reply]) -> list[float]:
    """Of each reply against the same without speculation; those of a single token say nothing."""
    pairs = [(a, b) for a, b in zip(replies, others, strict=True) if a.seconds and b.seconds]
    return [b.seconds / a.seconds for a, b in pairs]


def speed_up_line(name: str, replies: Sequence[Reply], others: Sequence[Reply]) -> str:
    each = speed_ups(replies, others)
    return (
        f"{name:12} {tokens_per_step(replies):6.2f} {rate(replies):8.1f} {rate(replies) / rate(others):6.2f}"
        f" {median(each):7.2f} {min(each):6.2f} {max(each):6.2f}"
    )


HEAD = f"{'':12} {'t/step':>6} {'tokens/s':>8} {'ratio':>6} {'median':>7} {'min':>6} {'max':>6}"
