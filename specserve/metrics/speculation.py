"""Drafts and what became of them, and where a step's time goes.

drafted = accepted + rejected + discarded. Accepted drafts are those kept; discarded ones were accepted by
the rule and cut off afterwards. Trimmed drafts were never verified and are in none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from specserve.metrics.series import Kind, Metric, Read, Values, one
from specserve.types import DraftStats, StepStats

C = Kind.COUNTER


def _by_position(stats: StepStats) -> Iterable[tuple[Values, float]]:
    longest = max((draft.accepted for draft in stats.drafts), default=0)
    return [((str(i),), sum(draft.accepted > i for draft in stats.drafts)) for i in range(longest)]


def _by_source(read: Callable[[DraftStats], int]) -> Read:
    def count(stats: StepStats) -> Iterable[tuple[Values, float]]:
        totals: dict[Values, float] = {}
        for draft in stats.drafts:
            if draft.source is not None:
                totals[(draft.source,)] = totals.get((draft.source,), 0) + read(draft)
        return totals.items()

    return count


def _of_source(name: str, help: str, read: Callable[[DraftStats], int]) -> Metric:
    """A series per source, from its first guess on."""
    return Metric(name, C, help, _by_source(read), labels=("source",), initial={}, is_speculation=True)


SPECULATION = (
    Metric(
        "vllm:spec_decode_num_drafts",
        C,
        "Verifications: one per sequence and step with drafts.",
        one(lambda s: len(s.drafts)),
        is_speculation=True,
    ),
    Metric(
        "vllm:spec_decode_num_draft_tokens",
        C,
        "Drafts verified = accepted + rejected + discarded.",
        one(lambda s: sum(draft.drafted for draft in s.drafts)),
        is_speculation=True,
    ),
    Metric(
        "vllm:spec_decode_num_accepted_tokens",
        C,
        "Drafts accepted and kept.",
        one(lambda s: sum(draft.accepted for draft in s.drafts)),
        is_speculation=True,
    ),
    Metric(
        "vllm:spec_decode_num_accepted_tokens_per_pos",
        C,
        "Drafts accepted and kept, by position in the draft (from 0).",
        _by_position,
        labels=("position",),
        initial={},  # one for each of the k positions
        is_speculation=True,
    ),
    Metric(
        "specserve:spec_decode_num_discarded_tokens",
        C,
        "Drafts the rule accepted, then cut off by an end token, a stop string or a cap.",
        one(lambda s: sum(draft.discarded for draft in s.drafts)),
        is_speculation=True,
    ),
    Metric(
        "specserve:spec_decode_num_trimmed_tokens",
        C,
        "Drafts cut by the step's budget or the context before anyone verified them.",
        one(lambda s: s.num_trimmed_draft_tokens),
        is_speculation=True,
    ),
    _of_source(
        "specserve:spec_decode_source_drafts", "Verifications, by who guessed: a drafter's name.", lambda _: 1
    ),
    _of_source(
        "specserve:spec_decode_source_draft_tokens", "Drafts verified, by who guessed.", lambda d: d.drafted
    ),
    _of_source(
        "specserve:spec_decode_source_accepted_tokens",
        "Drafts accepted and kept, by who guessed.",
        lambda d: d.accepted,
    ),
)

TIME = (
    Metric("specserve:step_seconds", C, "Time spent in engine steps.", one(lambda s: s.step_seconds)),
    Metric(
        "specserve:forward_seconds", C, "Of it, in the target's forward.", one(lambda s: s.forward_seconds)
    ),
    Metric("specserve:draft_seconds", C, "Of it, in the drafter.", one(lambda s: s.draft_seconds)),
    Metric(
        "specserve:verify_seconds", C, "Of it, in sampling and verifying.", one(lambda s: s.verify_seconds)
    ),
    Metric(
        "specserve:native_seconds",
        C,
        "Of it, inside the network's native call; the rest is the host's. 0 where PyTorch computes.",
        one(lambda s: s.native_seconds),
    ),
    Metric(
        "specserve:decode_steps",
        C,
        "Steps in which a sequence emitted, summed over sequences, the prompt's own excluded.",
        one(lambda s: s.num_emitting),
    ),
    Metric(
        "specserve:decode_tokens",
        C,
        "Tokens emitted in those; divided by decode_steps, the tokens per step.",
        one(lambda s: s.num_emitted),
    ),
)
