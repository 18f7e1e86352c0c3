"""Suffix decoding: what most often followed the current ending, in this text and in earlier outputs.

Oliaro et al., "SuffixDecoding" (2024). No weights, no cache: counts of all short substrings (`ops.suffix`) of
the sequence itself, prompt and output, and of its tenant's other outputs. How many guesses there are depends
on the length of the match and on how sure the counts are; never more than asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from weakref import finalize

from specserve.config.speculative import DEFAULT_TREE_DEPTH
from specserve.draft.base import SYNCED_ALWAYS
from specserve.draft.config_target import TargetInfo
from specserve.draft.suffix_file import Mark, StoreFile
from specserve.draft.suffix_store import Place, Stores, tenant_name
from specserve.ops.native import find_library
from specserve.ops.suffix import Forest, Guess, Limits, Tree, make_forest
from specserve.types import Ask, AskBatch, Commit, CommitBatch, Draft, Needs

Sharing = Literal["off", "per-tenant", "shared"]


@dataclass(frozen=True, slots=True)
class Options:
    """vLLM's four, then ours; in `config/speculative.py` is what they mean."""

    suffix_decoding_max_tree_depth: int = DEFAULT_TREE_DEPTH
    suffix_decoding_max_cached_requests: int = 10000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    suffix_decoding_cache: Sharing = "per-tenant"
    suffix_decoding_max_memory: int = 256 * 2**20
    suffix_decoding_store: str | None = None


def build(options: Options, target: TargetInfo) -> SuffixDrafter:
    """The target does not matter but for what is on disk: every text is drafted alike."""
    forest = make_forest(options.suffix_decoding_max_tree_depth, find_library())
    stores = make_stores(options, forest)
    if stores is None or options.suffix_decoding_store is None:
        return SuffixDrafter(options, forest, stores)
    mark = Mark(target.vocab_size, options.suffix_decoding_cache)
    file = StoreFile(Path(options.suffix_decoding_store), mark, stores)
    file.load()
    drafter = SuffixDrafter(options, forest, stores, file)
    finalize(drafter, file.save)  # when nobody needs the drafter any more, or when Python ends
    return drafter


def make_stores(options: Options, forest: Forest) -> Stores | None:
    """None when nothing is to be remembered."""
    if options.suffix_decoding_cache == "off" or not options.suffix_decoding_max_cached_requests:
        return None
    return Stores(
        forest.plant,
        depth=options.suffix_decoding_max_tree_depth,
        max_texts=options.suffix_decoding_max_cached_requests,
        max_bytes=options.suffix_decoding_max_memory,
    )


@dataclass(slots=True)
class _Text:
    """One sequence: its own tree, which lags behind `tokens`, a live view, and its place in the store."""

    tokens: Sequence[int]
    num_prompt: int
    tenant: str
    tree: Tree
    name: int
    place: Place | None = None
    num_stored: int = field(init=False)  # tokens the store has or need not have

    def __post_init__(self) -> None:
        self.num_stored = self.num_prompt


class SuffixDrafter:
    """Commits tell it where a text lies; what is in it, it takes in when asked for a guess, or at the end."""

    needs = Needs()

    def __init__(
        self, options: Options, forest: Forest, stores: Stores | None, file: StoreFile | None = None
    ) -> None:
        self._options = options
        self._forest = forest
        self._stores = stores
        self._file = file
        self._texts: dict[int, _Text] = {}

    def observe(self, commits: CommitBatch) -> None:
        for commit in commits.commits:
            if commit.seq_id not in self._texts:
                self._texts[commit.seq_id] = self._open(commit)

    def propose(self, asks: AskBatch) -> Draft:
        guesses = [self.guess(ask) for ask in asks.asks]
        return Draft([guess.tokens for guess in guesses], matches=[guess.match for guess in guesses])

    def synced(self, seq_id: int) -> int:
        return SYNCED_ALWAYS

    def forget(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            text = self._texts.pop(seq_id, None)
            if text is not None and self._stores is not None:
                self._store(text, self._stores)
                if text.place is not None:
                    self._stores.finish(text.place)
        if self._file is not None and not self._texts:
            self._file.save_if_grown()

    def guess(self, ask: Ask) -> Guess:
        """The better of what the text itself and the store say; `work` is of both.

        Equal scores go to the text itself.
        """
        options = self._options
        limits = Limits(
            ask.num_tokens,
            options.suffix_decoding_max_spec_factor,
            options.suffix_decoding_min_token_prob,
        )
        text = self._texts[ask.seq_id]
        text.tree.append(text.name, text.tokens[text.tree.num_tokens :])
        context = text.tokens[-options.suffix_decoding_max_tree_depth :]
        best = text.tree.speculate(text.name, context, limits)
        if self._stores is None:
            return best
        self._store(text, self._stores)
        if text.place is None:
            return best
        other = text.place.speculate(context, limits)
        work = best.work + other.work
        return (other if other.score > best.score else best)._replace(work=work)

    def _open(self, commit: Commit) -> _Text:
        is_shared = self._options.suffix_decoding_cache == "shared"
        tree = self._forest.plant()
        tenant = "" if is_shared else tenant_name(commit.tenant)
        return _Text(commit.tokens, commit.num_prompt, tenant, tree, tree.start())

    def _store(self, text: _Text, stores: Stores) -> None:
        """Hand on what was generated since the last time."""
        new = text.tokens[text.num_stored :]
        if not new:
            return
        if text.place is None:
            text.place = stores.start(text.tenant)
        stores.append(text.place, new)
        text.num_stored += len(new)
