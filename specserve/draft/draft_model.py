"""A separate, smaller model with the target's vocabulary guesses one token after the other.

Chen et al., "Accelerating Large Language Model Decoding with Speculative Sampling" (2023). Its layers live in
the target's page table. Row p is that of the token at p: nothing is shifted, and no row of the target's is
wanted. Rows of guesses that came true stay; a text whose guesses were all kept has two rows to catch up, any
other one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from specserve.draft.base import SYNCED_ALWAYS
from specserve.draft.config_target import TargetInfo
from specserve.models import find_model
from specserve.models.base import CausalLM
from specserve.models.batch import Piece, ragged
from specserve.models.runner import Runner, make_runner
from specserve.ops import Ops
from specserve.ops.native import Pool
from specserve.ops.program import Limits
from specserve.sampling.guess import Method, guess
from specserve.types import Ask, AskBatch, Commit, CommitBatch, Draft, DraftProbs, LayerCache, Needs

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    model: str
    num_speculative_tokens: int
    draft_sample_method: Method = "greedy"
    revision: str | None = None
    quantization: str | None = None
    max_model_len: int | None = None


def build(options: Options, target: TargetInfo) -> DraftModelDrafter:
    """Load the checkpoint. Raises `ModelError`."""
    site = target.site
    assert site is not None
    model, pool = site.load(find_model(options.model, revision=options.revision), options.quantization)
    drafter = DraftModelDrafter(model, options, site.ops, pool, site.cache_type)
    logger.info(
        "Draft model %s: %.1f MB of weights, %s bytes of KV cache per token.",
        options.model,
        model.num_bytes / 1e6,
        f"{sum(shape.bytes_per_token for shape in drafter.needs.layers):,}",
    )
    return drafter


@dataclass(slots=True)
class _Text:
    """One sequence: its rows before `num_true` are true. `ahead` are the guesses whose rows stand behind."""

    num_true: int
    num_preemptions: int
    ahead: list[int] = field(default_factory=list)

    def follow(self, tokens: Sequence[int]) -> None:
        """Rows of guesses that came true are true. The last token's is wanted again: it says what follows."""
        for token, truth in zip(self.ahead, tokens[self.num_true : -1], strict=False):
            if token != truth:
                break
            self.num_true += 1
        self.ahead = []


@dataclass(slots=True)
class _Growing:
    """An ask while it is answered: `most` guesses, fewer where the drafter's context ends."""

    ask: Ask
    text: _Text
    most: int
    tokens: list[int] = field(default_factory=list)
    q: list[Tensor] = field(default_factory=list)

    @property
    def q_rows(self) -> DraftProbs | None:
        return DraftProbs(torch.stack(self.q)) if self.q else None


class DraftModelDrafter:
    """`model` runs natively with a `pool`. Commits are noted; rows are computed before the next guess."""

    def __init__(
        self, model: CausalLM, options: Options, ops: Ops, pool: Pool | None, cache_type: torch.dtype
    ) -> None:
        self.needs = Needs(
            layers=tuple(replace(shape, dtype=cache_type) for shape in model.layers),
            lookahead=options.num_speculative_tokens,
            draft_slots=1,
        )
        self._model = model
        self._method = options.draft_sample_method
        self._max_len = options.max_model_len or model.max_position
        self._ops = ops
        self._pool = pool
        self._texts: dict[int, _Text] = {}
        self._runner: Runner | None = None
        self._limits = Limits(0, 0, 0)

    def bind(self, cache: Sequence[LayerCache], limits: Limits) -> None:
        self._limits = limits
        self._runner = make_runner(self._model, cache, (), limits, self._pool)

    def observe(self, commits: CommitBatch) -> None:
        for commit in commits.commits:
            self._text(commit).follow(commit.tokens)

    def propose(self, asks: AskBatch) -> Draft:
        growing = [self._begin(ask) for ask in asks.asks]
        active = [one for one in growing if one.most > 0]
        if active:
            self._grow(active, self._catch_up(active))
        for place in range(1, max((one.most for one in active), default=0)):
            active = [one for one in active if one.most > place]
            pieces = (
                Piece(one.tokens[-1:], len(one.ask.tokens) + place - 1, one.ask.block_table) for one in active
            )
            self._grow(active, self._run(pieces, range(len(active))))
        for one in growing:
            one.text.ahead = one.tokens[:-1]
        is_drawn = any(one.q for one in growing)
        q = [one.q_rows for one in growing] if is_drawn else None
        return Draft([one.tokens for one in growing], q)

    def synced(self, seq_id: int) -> int:
        """A text beyond the drafter's context has no further rows to wait for."""
        num_true = self._texts[seq_id].num_true
        return num_true if num_true < self._max_len else SYNCED_ALWAYS

    def forget(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self._texts.pop(seq_id, None)

    # --- parts of a guess ---------------------------------------------------------------------

    def _text(self, commit: Commit) -> _Text:
        text = self._texts.get(commit.seq_id)
        if text is None or text.num_preemptions != commit.num_preemptions:
            text = self._texts[commit.seq_id] = _Text(commit.start, commit.num_preemptions)
        return text

    def _begin(self, ask: Ask) -> _Growing:
        room = self._max_len - len(ask.tokens) + 1
        return _Growing(ask, self._texts[ask.seq_id], min(ask.num_tokens, room))

    def _catch_up(self, active: Sequence[_Growing]) -> Tensor:
        """Logits [n, V] of each text's last token, all rows before it computed on the way."""
        self._run_early_rows(active)
        pieces = [_missing(one) for one in active]
        ends = [0]
        for piece in pieces:
            ends.append(ends[-1] + len(piece.ids))
        for one in active:
            one.text.num_true = len(one.ask.tokens)
        return self._run(pieces, [end - 1 for end in ends[1:]])

    def _run_early_rows(self, active: Sequence[_Growing]) -> None:
        """Of prompts, and of texts nobody asked about for long: as many rows as do not fit into one batch."""
        extra = sum(len(_missing(one).ids) for one in active) - self._limits.max_rows
        for one in active:
            while extra > 0 and len(_missing(one).ids) > 1:
                ids, start, pages = _missing(one)
                chunk = ids[: min(len(ids) - 1, self._limits.max_rows)]
                self._run([Piece(chunk, start, pages)], [])
                one.text.num_true += len(chunk)
                extra -= len(chunk)

    def _run(self, pieces: Iterable[Piece], wanted: Sequence[int]) -> Tensor:
        assert self._runner is not None, "bind comes first"
        return self._runner.forward(ragged(pieces, self._limits.page_size), list(wanted)).logits

    def _grow(self, active: Sequence[_Growing], logits: Tensor) -> None:
        """One guess more for each."""
        asks, places = [one.ask for one in active], [len(one.tokens) for one in active]
        tokens, q = guess(self._ops, self._method, logits, asks, places)
        for i, (one, token) in enumerate(zip(active, tokens, strict=True)):
            one.tokens.append(token)
            if q is not None and one.ask.temperature:
                one.q.append(q[i])


def _missing(one: _Growing) -> Piece:
    """The rows up to the last token that are not true."""
    start = one.text.num_true
    return Piece(one.ask.tokens[start:], start, one.ask.block_table)
