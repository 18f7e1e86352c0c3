"""`num_speculative_tokens_per_batch_size`: k by the number of running requests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from specserve.errors import ConfigError

KEY = "num_speculative_tokens_per_batch_size"
Table = tuple[tuple[int, int, int], ...]


def read_table(items: Sequence[Any]) -> Table:
    """Check [first, last, k] ranges, both ends inclusive. Raises `ConfigError` naming the item."""
    if not items:
        raise _refusal("must not be empty; leave it out for a fixed number")
    table = tuple(_item(item) for item in items)
    if table[0][0] != 1:
        raise _refusal(f"must start at 1, got {list(table[0])} first")
    for (_, last, _), following in pairwise(table):
        if following[0] <= last:
            raise _refusal(
                f"must be sorted and without overlap, got {list(following)} after one that ends at {last}"
            )
    return table


def lookup(table: Table | None, num_tokens: int, max_num_seqs: int) -> tuple[int, ...]:
    """k for 0, 1, … `max_num_seqs` running requests; none run at 0.

    A gap between ranges keeps the k before it, and the last k goes on; no k exceeds `num_tokens`.
    """
    if table is None:
        return (0, *[num_tokens] * max_num_seqs)
    starts = {first: k for first, _, k in table}
    lengths, k = [0], 0
    for size in range(1, max_num_seqs + 1):
        k = starts.get(size, k)
        lengths.append(min(k, num_tokens))
    return tuple(lengths)


def _item(item: Any) -> tuple[int, int, int]:
    is_triple = isinstance(item, list | tuple) and len(item) == 3
    if not is_triple or any(not isinstance(n, int) or isinstance(n, bool) for n in item):
        raise _refusal(f"must hold [first, last, k] of integers, got {item!r}")
    first, last, k = item
    if first < 1 or last < first:
        raise _refusal(f"must have 1 <= first <= last, got {list(item)}")
    if k < 0:
        raise _refusal(f"values must be >= 0, got {list(item)}")
    return first, last, k


def _refusal(what: str) -> ConfigError:
    return ConfigError(f"{KEY} {what}.", KEY)
