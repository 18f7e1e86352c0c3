"""Is a sample's law the exact one? And a toy target whose joint law over a few tokens is known exactly.

`texts` runs the loop of an engine with everything but the verifier and the drafter removed: many sequences at
once, one seed each, any number of guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specserve.ops import Ops, reference_ops
from specserve.sampling.guess import draft_probs, guess
from specserve.sampling.process import RowGroup, SequenceSampling, process
from specserve.types import Ask, Draft, DraftProbs, RowRng, SamplingParams, SamplingRows
from specserve.verify import Verify
from tests.support.witness import check

Text = tuple[int, ...]


def g_statistic(counts: NDArray[np.int64], law: NDArray[np.float64]) -> tuple[float, int]:
    """G = 2 sum O ln(O / E) and its degrees of freedom; cells expected below 5 are merged into one."""
    expected = law / law.sum() * counts.sum()
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    used = observed > 0
    g = 2 * float((observed[used] * np.log(observed[used] / np.maximum(expected[used], 1e-12))).sum())
    return g, int((expected > 0).sum()) - 1


def p_value(g: float, degrees: int) -> float:
    """The probability of a G at least as large under the law: the tail of chi-square."""
    if degrees < 1:
        return 1.0
    halves = torch.tensor([degrees / 2, max(g, 0.0) / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(halves[0], halves[1]))


def check_law(counts: NDArray[np.int64], law: NDArray[np.float64], least: float = 1e-6) -> None:
    """Raises unless `counts` look like draws from `law`: p of the G-test is at least `least`, and what is
    impossible never happened."""
    p = law_p(counts, law)
    check(
        p > least, f"another law: G = %.1f for %d degrees of freedom, p = {p:.1e}" % g_statistic(counts, law)
    )


def law_p(counts: NDArray[np.int64], law: NDArray[np.float64]) -> float:
    """p of the G-test; raises if something impossible happened."""
    check(counts[law == 0].sum() == 0, "something impossible was drawn")
    return p_value(*g_statistic(counts, law))


@dataclass(frozen=True)
class Toy:
    """A target whose next-token logits depend on the last m tokens: `rows` [V + 1, ... V + 1, V], m + 1 axes;
    the index V stands for "nothing yet" and for ids outside the vocabulary."""

    rows: Tensor
    # Memory of `row` and `span`: a million texts have a few hundred beginnings.
    _row: dict[Text, int] = field(default_factory=dict, repr=False, compare=False)
    _span: dict[tuple[Text, Text], list[int]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def vocab_size(self) -> int:
        return self.rows.shape[-1]

    @property
    def flat(self) -> Tensor:
        """[N, V]"""
        return self.rows.flatten(0, -2)

    def row(self, prefix: Text) -> int:
        """Where the logits after `prefix` are in `flat`."""
        found = self._row.get(prefix)
        if found is None:
            found = self._row[prefix] = self._find(prefix)
        return found

    def span(self, prefix: Text, guesses: Text) -> list[int]:
        """Where the logits after `prefix` and after each of the guesses behind it are."""
        found = self._span.get((prefix, guesses))
        if found is None:
            found = [self.row((*prefix, *guesses[:j])) for j in range(1 + len(guesses))]
            self._span[prefix, guesses] = found
        return found

    def _find(self, prefix: Text) -> int:
        v, memory = self.vocab_size, self.rows.dim() - 1
        found = 0
        for token in ((v,) * memory + prefix)[-memory:]:
            found = found * (v + 1) + (token if 0 <= token < v else v)
        return found

    def probabilities(self, prefix: Text) -> NDArray[np.float64]:
        return self.flat[self.row(prefix)].double().softmax(0).numpy()

    def joint(self, horizon: int) -> NDArray[np.float64]:
        """The exact law of the first `horizon` tokens, [V ** horizon], first token most significant."""
        law = [
            np.prod([self.probabilities(text[:i])[text[i]] for i in range(horizon)])
            for text in product(range(self.vocab_size), repeat=horizon)
        ]
        return np.array(law)

    def processed(self, params: SamplingParams, memory: int = 5) -> Toy:
        """What verifiers see of it under `params`: penalties count the whole text, up to `memory` tokens."""
        v = self.vocab_size
        sampling = SequenceSampling(
            params, prompt_token_ids=[], stop_ids=frozenset(), bad_words_ids=[], vocab_size=v
        )
        groups: list[RowGroup] = []
        numbers: list[int] = []
        for symbols in product(range(v + 1), repeat=memory):
            first = next((i for i, symbol in enumerate(symbols) if symbol < v), memory)
            text = symbols[first:]
            groups.append(RowGroup(len(numbers), sampling, [], text))
            numbers += [self.row(text[:i]) for i in range(1 + len(text))]
        logits = process(reference_ops(), self.flat[numbers], groups)
        last = logits[[group.end_row - 1 for group in groups]]
        return Toy(last.reshape((v + 1,) * memory + (v,)))


def toy(vocab_size: int = 5, seed: int = 0) -> Toy:
    """Random rows from peaked to flat."""
    generator = torch.Generator().manual_seed(seed)
    size = vocab_size + 1
    scale = torch.rand(size, size, 1, generator=generator) * 2.5
    return Toy(torch.randn(size, size, vocab_size, generator=generator) * scale)


# (ops, prefixes, seeds, indices, k) -> guesses after each prefix
Guess = Callable[[Ops, list[Text], list[int], list[int], int], Draft]


def texts(
    ops: Ops,
    verify: Verify,
    target: Toy,
    guess: Guess,
    *,
    k: int,
    horizon: int,
    seeds: Sequence[int],
    temperature: float = 1.0,
) -> list[Text]:
    """The first `horizon` tokens of one text per seed. Indices count from an imagined prompt of length 10."""
    done: list[Text] = [() for _ in seeds]
    while alive := [i for i, text in enumerate(done) if len(text) < horizon]:
        prefixes = [done[i] for i in alive]
        own_seeds, indices = [seeds[i] for i in alive], [10 + len(text) for text in prefixes]
        draft = guess(ops, prefixes, own_seeds, indices, k)
        sampling, rng = SamplingRows([temperature] * len(alive)), RowRng(own_seeds, indices)
        verdict = verify(ops, rows_of(target, prefixes, draft), draft, sampling, rng)
        for i, tokens, accepted, following in zip(
            alive, draft.tokens, verdict.accepted, verdict.next_tokens, strict=True
        ):
            done[i] = (*done[i], *tokens[:accepted], following)
    return [text[:horizon] for text in done]


def rows_of(target: Toy, prefixes: Sequence[Text], draft: Draft) -> Tensor:
    """[R, V]: the 1 + len(draft) rows of every sequence, in order."""
    rows: list[int] = []
    for prefix, tokens in zip(prefixes, draft.tokens, strict=True):
        rows += target.span(prefix, tuple(tokens))
    return target.flat[rows]


def joint_counts(found: Sequence[Text], vocab_size: int) -> NDArray[np.int64]:
    """How often each text occurred, in the order of `Toy.joint`."""
    horizon = len(found[0])
    weights = vocab_size ** np.arange(horizon - 1, -1, -1)
    return np.bincount(np.array(found) @ weights, minlength=vocab_size**horizon)


def drawn_draft(tokens: list[list[int]], q: Tensor, ids: Tensor | None = None) -> Draft:
    """Guesses of n sequences that were drawn from `q` [n, k, Vd]."""
    return Draft(tokens, [DraftProbs(probs, ids) for probs in q])


# --- drafters for the toy ---------------------------------------------------------------------


def deterministic(choose: Callable[[Text], int]) -> Guess:
    """Guesses one token after the other, each a function of the text before it."""

    @cache
    def continued(prefix: Text, k: int) -> list[int]:
        text = prefix
        for _ in range(k):
            text = (*text, choose(text))
        return list(text[len(prefix) :])

    def propose(_ops: Ops, prefixes: list[Text], _seeds: list[int], _indices: list[int], k: int) -> Draft:
        return Draft([continued(prefix, k) for prefix in prefixes])

    return propose


# (ops, logits, asks, places, ids) -> (guesses, what they were drawn from): `specserve.sampling.guess` and
# worse
Choose = Callable[..., tuple[list[int], Tensor | None]]


def probabilistic(*arguments: Any) -> tuple[list[int], Tensor | None]:
    ops, *rest = arguments
    return guess(ops, "probabilistic", *rest)


def greedy(*arguments: Any) -> tuple[list[int], Tensor | None]:
    ops, *rest = arguments
    return guess(ops, "greedy", *rest)


def coupled(*arguments: Any) -> tuple[list[int], Tensor | None]:
    ops, *rest = arguments
    return guess(ops, "coupled", *rest)


def sampled(
    draft_target: Toy,
    ids: Sequence[int] | None = None,
    choose: Choose = probabilistic,
    temperature: float = 1.0,
) -> Guess:
    """Draws from another toy's law, whose column c is the target id `ids[c]`."""

    def rows(prefixes: Sequence[Text]) -> Tensor:
        return draft_target.flat[[draft_target.row(prefix) for prefix in prefixes]]

    return chosen(rows, None if ids is None else torch.tensor(ids), choose, temperature)


def chosen(
    rows: Callable[[Sequence[Text]], Tensor], ids: Tensor | None, choose: Choose, temperature: float
) -> Guess:
    """One guess after the other from a drafter's logits after each text, [n, Vd]; column c is the target id
    `ids[c]`."""

    def propose(ops: Ops, prefixes: list[Text], seeds: list[int], indices: list[int], k: int) -> Draft:
        tokens: list[list[int]] = [[] for _ in prefixes]
        asks = [
            Ask(0, range(index), k, temperature, seed) for index, seed in zip(indices, seeds, strict=True)
        ]
        q = []
        for place in range(k):
            logits = rows([(*p, *t) for p, t in zip(prefixes, tokens, strict=True)])
            found, probs = choose(ops, logits, asks, [place] * len(asks), ids)
            q.append(probs)
            for own, token in zip(tokens, found, strict=True):
                own.append(token)
        return Draft(tokens, draft_probs(asks, q, ids))

    return propose


def deterministic_guesses(target: Toy) -> dict[str, Guess]:
    """From always right at temperature 0 to hopeless, and some that leave the vocabulary."""
    v = target.vocab_size
    choices: dict[str, Callable[[Text], int]] = {
        "best": lambda text: int(target.probabilities(text).argmax()),
        "worst": lambda text: int(target.probabilities(text).argmin()),
        "echo": lambda text: text[-1] if text else 0,
        "hash": lambda text: (sum(token * 31**i for i, token in enumerate(text)) * 7 + 3) % v,
        "outside": lambda text: [1, v, -1, 2**40, 2][len(text) % 5],
    }
    return {name: deterministic(choose) for name, choose in choices.items()}


def sampled_guesses(target: Toy, choose: Choose = probabilistic) -> dict[str, Guess]:
    """q near p, unrelated to it, over some of its ids only, over more ids than it has."""
    v = target.vocab_size
    wide = toy(v + 2, seed=4)
    return {
        "near": sampled(Toy(target.rows * 0.8), None, choose),
        "unrelated": sampled(toy(v, seed=1), None, choose),
        "reduced": sampled(toy(3, seed=5), [3, 1, 0], choose),
        "wider": sampled(wide, None, choose),
        "foreign": sampled(toy(3, seed=6), [4, v + 7, 1], choose),
    }
