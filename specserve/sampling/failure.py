"""Rows that no token can come from. Whether anybody misses one depends on the guesses before it."""

from __future__ import annotations

from dataclasses import dataclass

NOTHING_ALLOWED = (
    "No token is left: allowed_token_ids, bad_words and logits processors together forbid all of them here."
)


class NothingAllowedError(RuntimeError):
    """A row of nothing but -inf."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The first such row of a sequence. `reason` is for whoever sent the request, if it is their doing."""

    row: int
    error: RuntimeError
    reason: str | None = None


def nothing_allowed(row: int) -> Failure:
    return Failure(row, NothingAllowedError(NOTHING_ALLOWED), NOTHING_ALLOWED)
