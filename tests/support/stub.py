"""A target with exact arithmetic over the paged cache: a stale, foreign or missing row changes its answer.

The only thing a row leaves in the cache is its token id and its position. What a row answers is a function
(a `Rule`) of the ids it reads back through the block table, so a wrong page cannot stay unnoticed. All
values are multiples of 1/4 below 2^10: exact in float32, ties included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specserve.types import KVShape, LayerCache, Rows

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
# (ids of positions 0..n-1, first) -> logits [n - first, V] of rows first..n-1; row p reads ids[: p + 1] only
Rule = Callable[[Ids, int], Floats]

BEST = 7.0  # logit of the favourite; everything else lies in [0, 3.75]


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: a bijection of 64 bits in which every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hash_rule(vocab_size: int = 32, surprise: int = 16) -> Rule:
    """Text that repeats itself enough for lookup drafts, and still depends on every token before it.

    The favourite of row p follows from a few bits of t[p] and of t[p // 8] (an old page). Once in `surprise`
    rows, and all the lesser logits always, are a hash of the whole context.
    """
    columns = np.arange(1, vocab_size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)

    def logits(ids: Ids, first: int) -> Floats:
        rows = np.arange(first, len(ids))
        places = np.arange(1, len(ids) + 1, dtype=np.uint64) << np.uint64(32)
        digest = _mix(np.cumsum(_mix(places + ids.astype(np.uint64)), dtype=np.uint64)[rows])
        local = _mix((ids[rows] % 8 * 2 + ids[rows // 8] % 2).astype(np.uint64))
        is_surprise = digest % np.uint64(surprise) == 0
        favourite = np.where(is_surprise, digest >> np.uint64(32), local) % np.uint64(vocab_size)
        out = (_mix(digest[:, None] + columns) >> np.uint64(60)).astype(np.float32) / 4
        out[np.arange(len(rows)), favourite.astype(np.int64)] = BEST
        return out

    return logits


def script_rule(texts: Sequence[Sequence[int]], vocab_size: int = 32) -> Rule:
    """The best token of row p is the one that stands at p + 1 in the text with this context's first token
    (a server's warm-up begins with another one: then any text)."""
    by_first = {text[0]: text for text in texts}

    def logits(ids: Ids, first: int) -> Floats:
        text = by_first.get(int(ids[0]), texts[0])
        out = np.zeros((len(ids) - first, vocab_size), np.float32)
        for row in range(first, len(ids)):
            out[row - first, text[(row + 1) % len(text)]] = BEST
        return out

    return logits


def fixed_rule(values: Sequence[float], by_last: Mapping[int, Sequence[float]] | None = None) -> Rule:
    """The same logits everywhere, or those named for a row's own token."""

    def logits(ids: Ids, first: int) -> Floats:
        return np.array([(by_last or {}).get(int(token), values) for token in ids[first:]], np.float32)

    return logits


class StubModel:
    """`specserve.models.base.CausalLM` around a rule. Hidden rows are the logits themselves; feature layer l
    is the hidden row plus l."""

    def __init__(self, rule: Rule | None = None, vocab_size: int = 32, max_position: int = 4096) -> None:
        self.rule = rule or hash_rule(vocab_size)
        self.vocab_size = vocab_size
        self.hidden_size = vocab_size
        self.max_position = max_position
        self.layers: tuple[KVShape, ...] = (KVShape(1, 1, torch.float32),)
        self.num_bytes = 0

    def forward(
        self, rows: Rows, cache: Sequence[LayerCache], features: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        (layer,) = cache
        if len(set(rows.slots.tolist())) != rows.slots.numel():
            raise AssertionError("two rows of one step share a slot")
        layer.keys[rows.slots, 0, 0] = rows.ids.to(torch.float32)
        layer.values[rows.slots, 0, 0] = rows.positions.to(torch.float32)
        parts = []
        for i, context in enumerate(rows.contexts):
            ids = read_ids(layer, rows.block_tables[i], context, rows.page_size)
            parts.append(self.rule(ids, context - (rows.starts[i + 1] - rows.starts[i])))
        hidden = torch.from_numpy(np.concatenate(parts))
        return hidden, torch.cat([hidden + layer for layer in features], dim=1) if features else None

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden.clone()

    # --- as an oracle -------------------------------------------------------------------------

    def row(self, tokens: Sequence[int]) -> Floats:
        """Logits of the last row of `tokens`, without any cache."""
        return self.rule(np.array(tokens, np.int64), len(tokens) - 1)[0]

    def next_token(self, tokens: Sequence[int]) -> int:
        return int(self.row(tokens).argmax())

    def continuation(self, tokens: Sequence[int], num_tokens: int) -> list[int]:
        """Greedy text after `tokens`."""
        text = list(tokens)
        for _ in range(num_tokens):
            text.append(self.next_token(text))
        return text[len(tokens) :]


def slots_of(block_table: Sequence[int], length: int, page_size: int) -> list[int]:
    return [block_table[p // page_size] * page_size + p % page_size for p in range(length)]


def read_ids(layer: LayerCache, block_table: Sequence[int], length: int, page_size: int) -> Ids:
    """The ids at positions 0..length-1. Raises when a slot was never written or holds another position."""
    slots = slots_of(block_table, length, page_size)
    positions = layer.values[slots, 0, 0].numpy()
    if not np.array_equal(positions, np.arange(length, dtype=np.float32)):
        wrong = int(np.flatnonzero(positions != np.arange(length))[0])
        raise AssertionError(f"the slot of position {wrong} holds the row of {positions[wrong]}")
    return layer.keys[slots, 0, 0].numpy().astype(np.int64)
