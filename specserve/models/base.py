"""What the engine asks of a network: rows in, hidden rows out, logits for the rows it wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from specserve.types import KVShape, LayerCache, Rows


class CausalLM(Protocol):
    """A network over a paged cache. It holds weights and no state; the cache is the caller's.

    `forward` writes the rows' own keys and values into `cache` first and then reads back, so what a row
    sees does not depend on which step wrote it. Feature layer l (0 ≤ l ≤ number of layers) is the
    residual stream that enters layer l; the last one is the stream after the last layer, before the
    final norm. `features` come back concatenated along the last axis, in the order asked.
    """

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def max_position(self) -> int: ...  # context length the checkpoint was made for
    @property
    def layers(self) -> tuple[KVShape, ...]: ...
    @property
    def num_bytes(self) -> int: ...  # of all weights

    def forward(
        self, rows: Rows, cache: Sequence[LayerCache], features: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Return (final-normed hidden [num_rows, hidden_size], features [num_rows, sum] or None)."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits [R, vocab_size] of hidden rows [R, hidden_size]."""
        ...
