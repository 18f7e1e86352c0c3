"""Drafters for tests, the hostile ones included.

Most are one pure function from an ask to guesses (`Guesser`); what they know is in their arguments. None
keeps a random generator: a guess depends on the sequence and its length, so order does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Protocol

import numpy as np
import torch

from specserve.draft.base import SYNCED_ALWAYS, Drafter
from specserve.ops import reference_ops
from specserve.sampling.guess import Method, draft_probs, guess
from specserve.types import Ask, AskBatch, CommitBatch, Draft, Needs
from tests.support.stub import StubModel

Guess = Callable[[Ask], list[int]]


class Guesser:
    """A drafter without state: `guess(ask)` for each ask."""

    def __init__(self, guess: Guess, needs: Needs | None = None) -> None:
        self.needs = needs or Needs()
        self._guess = guess

    def observe(self, commits: CommitBatch) -> None:
        return

    def propose(self, asks: AskBatch) -> Draft:
        return Draft([self._guess(ask) for ask in asks.asks])

    def synced(self, seq_id: int) -> int:
        return SYNCED_ALWAYS

    def forget(self, seq_ids: list[int]) -> None:
        return


def _random(ask: Ask, salt: int) -> Random:
    return Random(f"{salt}/{ask.seq_id}/{len(ask.tokens)}")


def random_guesses(vocab_size: int = 32, seed: int = 0) -> Guesser:
    """Any tokens, any number of them, none included."""

    def guess(ask: Ask) -> list[int]:
        random = _random(ask, seed)
        return [random.randrange(vocab_size) for _ in range(random.randint(0, ask.num_tokens))]

    return Guesser(guess)


class Foresight(Protocol):
    """Whoever knows how a text goes on: a stub target for greedy texts, `Known` for given ones."""

    vocab_size: int

    def continuation(self, tokens: Sequence[int], num_tokens: int) -> list[int]: ...


class Known:
    """Texts known beforehand, whatever they were drawn with; behind their end stands the token 0."""

    def __init__(self, texts: Iterable[Sequence[int]], vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.texts = [list(text) for text in texts]

    def continuation(self, tokens: Sequence[int], num_tokens: int) -> list[int]:
        length, known = len(tokens), list(tokens)
        text = next((text for text in self.texts if text[:length] == known), known)
        return (text[length : length + num_tokens] + [0] * num_tokens)[:num_tokens]


def half_right(known: Foresight, seed: int = 0) -> Guesser:
    """Any number of guesses, each of them with equal chance the right one or any id."""

    def guess(ask: Ask) -> list[int]:
        random = _random(ask, seed)
        right = known.continuation(ask.tokens, random.randint(0, ask.num_tokens))
        return [token if random.random() < 0.5 else random.randrange(known.vocab_size) for token in right]

    return Guesser(guess)


def self_draft(model: Foresight) -> Guesser:
    """The target as its own drafter: greedy continuations, all accepted at temperature 0."""
    return Guesser(lambda ask: model.continuation(list(ask.tokens), ask.num_tokens))


def always_right(texts: Iterable[Sequence[int]]) -> Guesser:
    """Knows the whole texts beforehand: an oracle whatever the sampling parameters."""
    known = [list(text) for text in texts]

    def guess(ask: Ask) -> list[int]:
        length = len(ask.tokens)
        text = next((text for text in known if text[:length] == list(ask.tokens)), [])
        return text[length : length + ask.num_tokens]

    return Guesser(guess)


def always_wrong(texts: Iterable[Sequence[int]], vocab_size: int = 32) -> Guesser:
    """As many guesses as asked, the first of which is never the next token of a known text."""
    known = [list(text) for text in texts]

    def guess(ask: Ask) -> list[int]:
        length = len(ask.tokens)
        right = {text[length] for text in known if text[:length] == list(ask.tokens) and len(text) > length}
        wrong = next(token for token in range(vocab_size) if token not in right)
        return [wrong] * ask.num_tokens

    return Guesser(guess)


def out_of_vocabulary(model: Foresight) -> Guesser:
    """A right guess, then ids no target has: negative, one past the end, beyond 32 bits."""
    strange = (-1, model.vocab_size, 2**40, -(2**40))

    def guess(ask: Ask) -> list[int]:
        first = model.continuation(list(ask.tokens), _random(ask, 1).randint(0, 1))
        return [*first, *strange * 32][: ask.num_tokens]

    return Guesser(guess)


def end_token_inside(model: Foresight, eos_token_id: int) -> Guesser:
    """The right continuation with an end token in its middle, and text after it."""

    def guess(ask: Ask) -> list[int]:
        right = model.continuation(list(ask.tokens), ask.num_tokens)
        right[len(right) // 2] = eos_token_id
        return right

    return Guesser(guess)


class Sampler(Guesser):
    """A drafter with probabilities: the target's own logits times `sharpness`, and only those of `ids`.

    One guess after the other, each row depending on the guesses before it, as a draft network does.
    """

    def __init__(
        self, model: StubModel, method: Method, *, sharpness: float = 0.5, ids: Sequence[int] | None = None
    ) -> None:
        super().__init__(lambda _: [])
        self._model = model
        self._method = method
        self._sharpness = sharpness
        self._ids = None if ids is None else torch.tensor(ids)

    def propose(self, asks: AskBatch) -> Draft:
        texts = [list(ask.tokens) for ask in asks.asks]
        q = []
        for place in range(max(ask.num_tokens for ask in asks.asks)):
            rows = torch.from_numpy(np.stack([self._model.row(text) for text in texts])) * self._sharpness
            rows = rows if self._ids is None else rows[:, self._ids]
            places = [place] * len(texts)
            tokens, probs = guess(reference_ops(), self._method, rows, asks.asks, places, self._ids)
            q.append(probs)
            for text, token in zip(texts, tokens, strict=True):
                text.append(token)
        guesses = [
            text[len(ask.tokens) :][: ask.num_tokens] for text, ask in zip(texts, asks.asks, strict=True)
        ]
        return Draft(guesses, draft_probs(asks.asks, q, self._ids))


def short_lists(inner: Drafter, seed: int = 0) -> Drafter:
    """`inner` with each list cut to a random length, often to nothing."""
    return Wrapped(inner, lambda ask, tokens: tokens[: _random(ask, seed).randint(0, len(tokens))])


def raises_sometimes(inner: Drafter, is_time: Callable[[int], bool]) -> Drafter:
    """`inner`, but call number n of `propose` raises when `is_time(n)`."""
    calls = iter(range(10**9))

    def cut(_: Ask, tokens: list[int]) -> list[int]:
        if is_time(next(calls)):
            raise RuntimeError("the drafter broke")
        return tokens

    return Wrapped(inner, cut)


class Wrapped:
    """A drafter around a drafter that changes its answers."""

    def __init__(self, inner: Drafter, change: Callable[[Ask, list[int]], list[int]]) -> None:
        self.needs = inner.needs
        self.observe = inner.observe
        self.synced = inner.synced
        self.forget = inner.forget
        self.inner = inner
        self._change = change

    def propose(self, asks: AskBatch) -> Draft:
        draft = self.inner.propose(asks)
        changed = [self._change(ask, tokens) for ask, tokens in zip(asks.asks, draft.tokens, strict=True)]
        return replace(draft, tokens=changed)


class Predicting:
    """Tells `inner` a prediction beside each ask: the output of the known text, some of its tokens exchanged,
    left out or put in, another time another text's output."""

    def __init__(
        self, inner: Drafter, texts: Iterable[Sequence[int]], vocab_size: int, seed: int = 0
    ) -> None:
        self.needs, self.observe, self.synced = inner.needs, inner.observe, inner.synced
        self.inner = inner
        self._texts = [list(text) for text in texts]
        self._vocab_size = vocab_size
        self._seed = seed
        self._predictions: dict[int, list[int]] = {}

    def propose(self, asks: AskBatch) -> Draft:
        given = [replace(ask, predicted=self._prediction(ask)) for ask in asks.asks]
        return self.inner.propose(AskBatch(given))

    def forget(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self._predictions.pop(seq_id, None)
        self.inner.forget(seq_ids)

    def _prediction(self, ask: Ask) -> list[int]:
        if ask.seq_id not in self._predictions:
            random, known = Random(f"{self._seed}/{ask.seq_id}"), list(ask.tokens)
            right = [text for text in self._texts if text[: len(known)] == known]
            text = random.choice(right if right and random.randrange(4) else self._texts)
            kept = [t if random.randrange(6) else random.randrange(self._vocab_size) for t in text]
            kept = kept[ask.num_prompt :]
            if kept and random.randrange(2):
                at = random.randrange(len(kept))
                kept[at : at + random.randrange(3)] = [random.randrange(self._vocab_size)] * random.randrange(
                    3
                )
            self._predictions[ask.seq_id] = kept
        return self._predictions[ask.seq_id]


class Scripted:
    """Answers given beforehand: for each sequence (in order of appearance) one list per time it is asked."""

    needs = Needs()

    def __init__(self, *answers: Sequence[Sequence[int]]) -> None:
        self._answers = iter(answers)
        self._of: dict[int, list[list[int]]] = {}
        self.asked: list[tuple[int, int]] = []  # (seq_id, num_tokens) in order

    def observe(self, commits: CommitBatch) -> None:
        for commit in commits.commits:
            if commit.seq_id not in self._of:
                self._of[commit.seq_id] = [list(answer) for answer in next(self._answers, [])]

    def propose(self, asks: AskBatch) -> Draft:
        self.asked += [(ask.seq_id, ask.num_tokens) for ask in asks.asks]
        return Draft([self._of[ask.seq_id].pop(0) if self._of[ask.seq_id] else [] for ask in asks.asks])

    def synced(self, seq_id: int) -> int:
        return SYNCED_ALWAYS

    def forget(self, seq_ids: list[int]) -> None:
        return
