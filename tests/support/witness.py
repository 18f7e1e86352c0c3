"""Drafters that check what the engine tells them; any breach of the contract raises AssertionError.

`Recording` wraps any drafter and checks the news it gets. `Cached` keeps rows of its own in the shared page
table, as a drafter with a network does, and reads them all back before each guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from specserve.draft.base import Drafter
from specserve.ops.program import Limits
from specserve.types import Ask, AskBatch, Commit, CommitBatch, Draft, KVShape, LayerCache
from tests.support.stub import StubModel, slots_of


def check(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


@dataclass
class Story:
    """What one sequence was told."""

    tokens: list[int] = field(default_factory=list)  # true tokens as last seen; they only ever grow
    computed: int = 0
    num_restarts: int = 0  # commits that went back, once per recomputation


class Recording:
    """Passes everything on to `inner` and checks it.

    Commits of a sequence are contiguous or start again at a page's start; the token after every committed
    row is known; true tokens never change; feature rows are those of the true tokens (with `model`); asks
    come for committed sequences only; nothing comes after `forget`, which comes once.
    """

    def __init__(
        self, inner: Drafter, page_size: int, model: StubModel | None = None, may_exceed: bool = False
    ) -> None:
        self.inner = inner
        self._may_exceed = may_exceed
        self._page_size = page_size
        self._model = model
        features = inner.needs.features or ((0,) if model else ())
        self.needs = replace(inner.needs, features=features)
        self.stories: dict[int, Story] = {}
        self.forgotten: set[int] = set()
        self.num_proposed = 0
        self.num_chunks = 0  # commits that end before the last known token: of a prompt, or recomputed

    @property
    def num_restarts(self) -> int:
        return sum(story.num_restarts for story in self.stories.values())

    def observe(self, commits: CommitBatch) -> None:
        seq_ids = [commit.seq_id for commit in commits.commits]
        check(len(set(seq_ids)) == len(seq_ids), "a sequence has two commits in one step")
        for commit in commits.commits:
            self._record(commit, commits)
        self.inner.observe(commits)

    def propose(self, asks: AskBatch) -> Draft:
        for ask in asks.asks:
            self._check_alive(ask.seq_id)
            story = self.stories[ask.seq_id]
            check(ask.num_tokens >= 1, "asked for nothing")
            check(list(ask.tokens) == story.tokens, "asked about other tokens than were committed")
            check(story.computed == len(story.tokens) - 1, "asked before the prompt was done")
        draft = self.inner.propose(asks)
        check(len(draft.tokens) == len(asks.asks), "not one list per ask")
        for ask, tokens in zip(asks.asks, draft.tokens, strict=True):
            is_fair = len(tokens) <= ask.num_tokens or self._may_exceed
            check(is_fair, f"asked for {ask.num_tokens}, answered with {len(tokens)}")
        self.num_proposed += sum(draft.lengths)
        return draft

    def synced(self, seq_id: int) -> int:
        self._check_alive(seq_id)
        return self.inner.synced(seq_id)

    def forget(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self._check_alive(seq_id)
            self.forgotten.add(seq_id)
        self.inner.forget(seq_ids)

    def _check_alive(self, seq_id: int) -> None:
        check(seq_id not in self.forgotten, f"sequence {seq_id} was forgotten already")

    def _record(self, commit: Commit, commits: CommitBatch) -> None:
        self._check_alive(commit.seq_id)
        check(commit.start < commit.end, "an empty commit")
        check(len(commit.tokens) > commit.end, "the token after the last row is unknown")
        is_new = commit.seq_id not in self.stories
        story = self.stories.setdefault(commit.seq_id, Story())
        if commit.start != story.computed:
            check(commit.start % self._page_size == 0, f"rows {story.computed}..{commit.start} are missing")
            story.num_restarts += not is_new
        story.computed = commit.end
        self.num_chunks += commit.end < len(commit.tokens) - 1
        check(list(commit.tokens[: len(story.tokens)]) == story.tokens, "a true token changed")
        story.tokens = list(commit.tokens)
        if self._model is not None and commits.features is not None:
            size = self._model.hidden_size
            rows = commits.features[commit.row : commit.row + commit.end - commit.start, :size].numpy()
            truth = self._model.rule(np.array(commit.tokens[: commit.end], np.int64), commit.start)
            check(np.array_equal(rows, truth + self.needs.features[0]), "features of other rows")


class Cached:
    """Row p of its layer holds (the feature of row p, the token at p + 1): like EAGLE, it reads one ahead.

    With `is_lazy` rows wait in a queue and are written before the next guess of their sequence. Guesses come
    from `inner` and are also written, as garbage, into the slots past the true rows.
    """

    GARBAGE = -1.0

    def __init__(
        self, inner: Drafter, model: StubModel, page_size: int, k: int, is_lazy: bool = False
    ) -> None:
        shape = KVShape(1, model.hidden_size, torch.float32)
        self.needs = replace(inner.needs, features=(2,), layers=(shape,), lookahead=k, successors=1)
        self.inner = inner
        self._model = model
        self._page_size = page_size
        self._is_lazy = is_lazy
        self._cache: LayerCache | None = None
        self._queues: dict[int, list[tuple[Commit, torch.Tensor]]] = {}
        self._synced: dict[int, int] = {}
        self.num_rows_read = 0
        self.num_rows_shared = 0  # rows of a first commit's prefix: never written by this sequence

    @property
    def is_empty(self) -> bool:
        return not self._queues and not self._synced

    def bind(self, cache: Sequence[LayerCache], limits: Limits) -> None:
        (self._cache,) = cache

    def observe(self, commits: CommitBatch) -> None:
        assert commits.features is not None
        for commit in commits.commits:
            rows = commits.features[commit.row : commit.row + commit.end - commit.start]
            self._queue(commit).append((commit, rows))
            if not self._is_lazy:
                self._flush(commit.seq_id)
        self.inner.observe(commits)

    def propose(self, asks: AskBatch) -> Draft:
        for ask in asks.asks:
            self._flush(ask.seq_id)
            self._read_back(ask)
            self._write_ahead(ask)
        return self.inner.propose(asks)

    def synced(self, seq_id: int) -> int:
        return min(self._synced[seq_id], self.inner.synced(seq_id))

    def forget(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self._queues.pop(seq_id, None)
            self._synced.pop(seq_id, None)
        self.inner.forget(seq_ids)

    def _queue(self, commit: Commit) -> list[tuple[Commit, torch.Tensor]]:
        """What waits before this commit. It may go back (told again, or recomputed) or jump (prefix hit)."""
        seq_id = commit.seq_id
        queue = [entry for entry in self._queues.get(seq_id, []) if entry[0].end <= commit.start]
        synced = self._synced.get(seq_id, 0)
        if (queue[-1][0].end if queue else synced) < commit.start:
            queue, synced = [], commit.start
            self.num_rows_shared += commit.start
        self._synced[seq_id] = min(synced, commit.start)
        self._queues[seq_id] = queue
        return queue

    def _layer(self) -> LayerCache:
        assert self._cache is not None, "bind() first"
        return self._cache

    def _flush(self, seq_id: int) -> None:
        for commit, rows in self._queues.pop(seq_id, []):
            slots = slots_of(commit.block_table, commit.end, self._page_size)[commit.start :]
            following = torch.tensor(commit.tokens[commit.start + 1 : commit.end + 1], dtype=torch.float32)
            self._layer().keys[slots, 0] = rows
            self._layer().values[slots, 0] = following[:, None]
            self._synced[seq_id] = commit.end

    def _read_back(self, ask: Ask) -> None:
        length = len(ask.tokens) - 1
        slots = slots_of(ask.block_table, length, self._page_size)
        truth = self._model.rule(np.array(ask.tokens[:length], np.int64), 0) + self.needs.features[0]
        keys, values = self._layer().keys[slots, 0].numpy(), self._layer().values[slots, 0, 0].numpy()
        check(np.array_equal(keys, truth), "a cached row of the drafter is not true")
        check(values.tolist() == list(ask.tokens[1:]), "a cached row was made with another next token")
        self.num_rows_read += length

    def _write_ahead(self, ask: Ask) -> None:
        """Guess rows land past the true ones; the pages for them must be there and be the sequence's own."""
        first = len(ask.tokens) - 1
        slots = slots_of(ask.block_table, first + ask.num_tokens, self._page_size)[first:]
        self._layer().keys[slots] = self.GARBAGE
        self._layer().values[slots] = self.GARBAGE
