"""How often guesses were right: added up from replies, or read from a server's counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Any

from specserve.bench.counters import Counters

SERIES = "vllm:spec_decode_num_{}_total"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Over verifications with guesses; `per_position[i]` of them accepted more than i guesses."""

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    per_position: tuple[int, ...] = ()

    def __add__(self, other: Acceptance) -> Acceptance:
        pairs = zip_longest(self.per_position, other.per_position, fillvalue=0)
        return Acceptance(
            self.num_drafts + other.num_drafts,
            self.num_draft_tokens + other.num_draft_tokens,
            self.num_accepted_tokens + other.num_accepted_tokens,
            tuple(a + b for a, b in pairs),
        )

    def figures(self) -> dict[str, Any]:
        """By vLLM's names, and the rates per position once more by ours. Rates in percent, as vLLM's file."""
        drafts, tokens = max(self.num_drafts, 1), max(self.num_draft_tokens, 1)
        rates = [count / drafts for count in self.per_position]
        return {
            "spec_decode_acceptance_rate": 100 * self.num_accepted_tokens / tokens,
            "spec_decode_acceptance_length": 1 + self.num_accepted_tokens / drafts,
            "spec_decode_num_drafts": self.num_drafts,
            "spec_decode_draft_tokens": self.num_draft_tokens,
            "spec_decode_accepted_tokens": self.num_accepted_tokens,
            "spec_decode_per_position_acceptance_rates": rates,
            "acceptance_per_position": rates,
        }


def from_histogram(num_draft_tokens: int, num_accepted: int, histogram: Sequence[int]) -> Acceptance:
    """`histogram[j]` verifications accepted exactly j guesses."""
    at_least = list(accumulate(reversed(histogram)))[::-1]
    return Acceptance(sum(histogram), num_draft_tokens, num_accepted, tuple(at_least[1:]))


def from_reply(fields: Mapping[str, Any]) -> Acceptance | None:
    """From `metrics.speculative_decoding` of a reply; None if it is not what we know."""
    try:
        return from_histogram(
            int(fields["num_draft_tokens"]),
            int(fields["num_accepted_draft_tokens"]),
            [int(count) for count in fields["acceptance_histogram"]],
        )
    except (KeyError, TypeError, ValueError):
        return None


def from_counters(counters: Counters) -> Acceptance | None:
    """From what was counted between two looks; None when nothing was."""
    drafts, tokens, accepted = (
        round(counters.values.get(SERIES.format(name), 0))
        for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    by_position = counters.by_position.get(SERIES.format("accepted_tokens_per_pos"), {})
    per_position = tuple(round(by_position.get(at, 0)) for at in range(max(by_position, default=-1) + 1))
    return Acceptance(drafts, tokens, accepted, per_position) if drafts else None
