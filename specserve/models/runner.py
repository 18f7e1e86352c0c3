"""A network's forward pass over a batch's rows: logits of the rows asked for, features for a drafter.

`EagerRunner` calls the network op by op on any device; `NativeRunner` runs its recorded program in one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specserve.models.base import CausalLM
from specserve.models.batch import to_rows
from specserve.models.decoder import Decoder
from specserve.ops.native import Pool
from specserve.ops.program import Limits, Program
from specserve.ops.record import Recorder
from specserve.types import Batch, LayerCache, Rows

# A prompt chunk's logits at once would take rows x vocabulary x 4 bytes (100 MB for 512 rows of 49k ids).
PROMPT_LOGITS_ROWS = 64

_NONE = torch.empty(0, dtype=torch.int64)
NO_ROWS = Rows(_NONE, _NONE, _NONE, [0], [], [], 1)  # a recording computes nothing


@dataclass(frozen=True, slots=True)
class StepRows:
    """`logits` [R, V] float32 of the asked rows, unprocessed, to be changed in place by whoever wants, and
    written over by the next step; `features` [num_rows, sum] when wanted."""

    logits: Tensor
    features: Tensor | None


class Runner(Protocol):
    """One network on one cache, whose first layers are the network's: a drafter's may follow a target's."""

    @property
    def model(self) -> CausalLM: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def native_seconds(self) -> float:
        """Inside native calls, of all steps so far: the rest of a step is the host's."""
        ...

    def forward(self, batch: Batch, wanted: list[int]) -> StepRows: ...
    def logits_at(self, wanted: list[int]) -> Tensor:
        """Logits [R, V] float32 of further rows of the last step."""
        ...


class EagerRunner:
    """Nothing is differentiated. `NativeRunner` needs no guard against it, which would cost a step 25 us."""

    native_seconds = 0.0

    def __init__(self, model: CausalLM, cache: Sequence[LayerCache], features: Sequence[int] = ()) -> None:
        self.model = model
        self.cache = cache
        self._features = tuple(features)
        self._hidden: Tensor | None = None

    @property
    def device(self) -> torch.device:
        return self.cache[0].keys.device

    @torch.no_grad()
    def forward(self, batch: Batch, wanted: list[int]) -> StepRows:
        cache, rows = self.cache[: len(self.model.layers)], to_rows(batch, self.device)
        self._hidden, features = self.model.forward(rows, cache, self._features)
        return StepRows(self.logits_at(wanted), features)

    @torch.no_grad()
    def logits_at(self, wanted: list[int]) -> Tensor:
        if self._hidden is None:
            raise RuntimeError("no step has run yet")
        if len(wanted) == len(self._hidden):
            return self.model.logits(self._hidden)
        return self.model.logits(self._hidden[torch.tensor(wanted, dtype=torch.int64, device=self.device)])


class NativeRunner:
    """Records the decoder once, on the cache it will use."""

    def __init__(
        self,
        model: Decoder,
        cache: Sequence[LayerCache],
        features: Sequence[int],
        pool: Pool,
        limits: Limits,
    ) -> None:
        self.model = model
        self.cache = cache
        recorder = Recorder()
        recording = model.with_ops(recorder.ops())
        # The recorder's symbols stand for tensors here: nothing is computed.
        hidden, kept = recording.body(NO_ROWS, cache[: len(model.layers)], features)
        settled = recorder.settle(hidden)
        num_body = len(recorder.records)
        recorder.settle(recording.head(recorder.gather(settled)))
        records, values = recorder.records, [recorder.settle(value) for value in kept]
        self.program = Program(
            pool, records[:num_body], records[num_body:], values, limits, model.ops.run_program
        )

    @property
    def device(self) -> torch.device:
        return self.cache[0].keys.device

    @property
    def native_seconds(self) -> float:
        return self.program.seconds

    def forward(self, batch: Batch, wanted: list[int]) -> StepRows:
        logits = self.program.run(batch, wanted)
        return StepRows(logits, self.program.kept())

    def logits_at(self, wanted: list[int]) -> Tensor:
        return self.program.logits_at(wanted)


def make_runner(
    model: CausalLM, cache: Sequence[LayerCache], features: Sequence[int], limits: Limits, pool: Pool | None
) -> Runner:
    """Native with a `pool`; the weights are such that one of the two can use them."""
    if pool is None:
        return EagerRunner(model, cache, features)
    if not isinstance(model, Decoder):
        raise TypeError("only a decoder can be recorded")
    return NativeRunner(model, cache, features, pool, limits)


def logits_in_parts(runner: Runner, first: int, end: int) -> Iterator[Tensor]:
    """Logits of rows [first, end) of the last step, a few at a time: each [≤ PROMPT_LOGITS_ROWS, V]."""
    for start in range(first, end, PROMPT_LOGITS_ROWS):
        yield runner.logits_at(list(range(start, min(start + PROMPT_LOGITS_ROWS, end))))
