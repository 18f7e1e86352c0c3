"""Rules, drafters and runners that look right and are not: what a test of exactness must refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specserve.models.runner import NativeRunner, StepRows
from specserve.ops import Ops
from specserve.ops.native import make_pool
from specserve.ops.philox import RESIDUAL, TARGET
from specserve.ops.program import Limits
from specserve.types import Ask, Batch, Draft, DraftProbs, RowRng, SamplingRows, Verdict
from specserve.verify import block, coupled, drawn, load_verifier
from tests.support.law import Choose, Guess, Text

# --- rules ------------------------------------------------------------------------------------


def accept_all(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    ends = np.cumsum([1 + length for length in draft.lengths]) - 1
    indices = [index + length for index, length in zip(rng.indices, draft.lengths, strict=True)]
    own = ops.draw(logits[ends.tolist()], sampling.temperatures, rng.seeds, indices, TARGET)
    return Verdict(draft.lengths, own.tolist())


def redraw_after_refusal(
    ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng
) -> Verdict:
    """Accepts with the right probability, then draws from p once more, the refused guess included."""
    verdict = load_verifier("standard")(ops, logits, draft, sampling, rng)
    firsts = np.cumsum([0, *(1 + length for length in draft.lengths[:-1])])
    ends = [int(first) + kept for first, kept in zip(firsts, verdict.accepted, strict=True)]
    indices = [index + kept for index, kept in zip(rng.indices, verdict.accepted, strict=True)]
    tokens = ops.draw(logits[ends], sampling.temperatures, rng.seeds, indices, RESIDUAL).tolist()
    return Verdict(verdict.accepted, tokens)


def trust_the_first_guess(
    ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng
) -> Verdict:
    verdict = load_verifier("standard")(ops, logits, draft, sampling, rng)
    kept = [max(n, min(1, length)) for n, length in zip(verdict.accepted, draft.lengths, strict=True)]
    return Verdict(kept, verdict.next_tokens)


def block_by_token(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    """Block verification whose numbers belong to positions, not to blocks."""
    return drawn.verify(
        ops, logits, draft, sampling, rng, plain=coupled.verify, judge=block.judge, key=drawn.by_token
    )


# --- drafters ---------------------------------------------------------------------------------


def with_noise_of(purpose: int) -> Choose:
    """Draws with noise that is meant for something else; and it belongs to the position, not to the block."""

    def choose(ops: Ops, logits: Tensor, asks: Sequence[Ask], places: Sequence[int], ids: Any) -> Any:
        scaled = logits / torch.tensor([ask.temperature for ask in asks])[:, None]
        indices = [len(ask.tokens) + place for ask, place in zip(asks, places, strict=True)]
        seeds = [ask.seed for ask in asks]
        tokens = ops.draw(_by_target_id(scaled, ids), [1.0] * len(asks), seeds, indices, purpose)
        return tokens.tolist(), scaled.softmax(1)

    return choose


def _by_target_id(logits: Tensor, ids: Tensor | None) -> Tensor:
    """Noise belongs to an id of the target; to share it, a drafter draws there."""
    if ids is None:
        return logits
    wide = logits.new_full((len(logits), int(ids.max()) + 1), -torch.inf)
    wide[:, ids] = logits
    return wide


def stops_when_unsure(inner: Guess, least: float = 0.3) -> Guess:
    """Ends each draft before the first guess of small q: the number of guesses depends on what was drawn."""

    def propose(ops: Ops, prefixes: list[Text], seeds: list[int], indices: list[int], k: int) -> Draft:
        draft = inner(ops, prefixes, seeds, indices, k)
        cut = []
        for tokens, q in zip(draft.tokens, draft.q or [], strict=True):
            assert q is not None
            chances = [_chance(q, j, token) for j, token in enumerate(tokens)]
            cut.append(tokens[: next((j for j, chance in enumerate(chances) if chance < least), len(tokens))])
        return Draft(cut, draft.q)

    return propose


def _chance(q: DraftProbs, place: int, token: int) -> float:
    return float(q.probs[place, token] if q.ids is None else q.probs[place, q.ids == token].sum())


def misreports(inner: Guess) -> Guess:
    """Says that its guesses were drawn evenly."""

    def propose(ops: Ops, prefixes: list[Text], seeds: list[int], indices: list[int], k: int) -> Draft:
        draft = inner(ops, prefixes, seeds, indices, k)
        for q in draft.q or []:
            if q is not None:
                q.probs.fill_(1 / q.probs.shape[1])
        return draft

    return propose


# --- runners ----------------------------------------------------------------------------------


class Uneven:
    """Steps of one row round as `runner` does, those of several rows as the portable kernels: once more
    where the others have a fused multiply-add. The texts are mostly the same."""

    native_seconds = 0.0

    def __init__(self, runner: NativeRunner, limits: Limits) -> None:
        self.model, self.device, self.cache = runner.model, runner.device, runner.cache
        pool = make_pool(runner.program.pool.library, 2, "portable")
        self._one = self._last = runner
        self._many = NativeRunner(runner.model, runner.cache, (), pool, limits)

    def forward(self, batch: Batch, wanted: list[int]) -> StepRows:
        self._last = self._one if len(batch.ids) == 1 else self._many
        return self._last.forward(batch, wanted)

    def logits_at(self, wanted: list[int]) -> Tensor:
        return self._last.logits_at(wanted)
