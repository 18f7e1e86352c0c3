"""Is a sample's law the exact one? And a toy target whose joint law over a few tokens is known exactly.

`texts` runs the loop of an engine with everything but the verifier and the drafter removed: many sequences at
once, one seed each, any number of guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import DRAFT
from specserve.types import Draft, RowRng, SamplingRows
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


def check_law(counts: NDArray[np.int64], law: NDArray[np.float64]) -> None:
    """Raises unless `counts` look like draws from `law`: G stays five standard deviations near its mean, and
    what is impossible never happened."""
    check(counts[law == 0].sum() == 0, "something impossible was drawn")
    g, degrees = g_statistic(counts, law)
    check(
        g < degrees + 5 * np.sqrt(2 * degrees), f"another law: G = {g:.1f} for {degrees} degrees of freedom"
    )


@dataclass(frozen=True)
class Toy:
    """A target whose next-token logits depend on the last two tokens: `rows` [V + 1, V + 1, V]; the index V
    stands for "nothing yet" and for ids outside the vocabulary."""

    rows: Tensor

    @property
    def vocab_size(self) -> int:
        return self.rows.shape[2]

    def row(self, prefix: Text) -> int:
        """Where the logits after `prefix` are in `rows`, its first two axes taken as one."""
        v = self.vocab_size
        before, last = (token if 0 <= token < v else v for token in (v, v, *prefix)[-2:])
        return before * (v + 1) + last

    def probabilities(self, prefix: Text) -> NDArray[np.float64]:
        return self.rows.flatten(0, 1)[self.row(prefix)].double().softmax(0).numpy()

    def joint(self, horizon: int) -> NDArray[np.float64]:
        """The exact law of the first `horizon` tokens, [V ** horizon], first token most significant."""
        law = [
            np.prod([self.probabilities(text[:i])[text[i]] for i in range(horizon)])
            for text in product(range(self.vocab_size), repeat=horizon)
        ]
        return np.array(law)


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
    texts = zip(prefixes, draft.tokens, strict=True)
    rows = [target.row((*prefix, *tokens[:j])) for prefix, tokens in texts for j in range(1 + len(tokens))]
    return target.rows.flatten(0, 1)[rows]


def joint_counts(found: Sequence[Text], vocab_size: int) -> NDArray[np.int64]:
    """How often each text occurred, in the order of `Toy.joint`."""
    horizon = len(found[0])
    weights = vocab_size ** np.arange(horizon - 1, -1, -1)
    return np.bincount(np.array(found) @ weights, minlength=vocab_size**horizon)


# --- drafters for the toy ---------------------------------------------------------------------


def deterministic(choose: Callable[[Text], int]) -> Guess:
    """Guesses one token after the other, each a function of the text before it."""

    @cache
    def continued(prefix: Text, k: int) -> Text:
        text = prefix
        for _ in range(k):
            text = (*text, choose(text))
        return text[len(prefix) :]

    def guess(_ops: Ops, prefixes: list[Text], _seeds: list[int], _indices: list[int], k: int) -> Draft:
        return Draft([list(continued(prefix, k)) for prefix in prefixes])

    return guess


def sampled(draft_target: Toy, q_ids: Sequence[int] | None = None, purpose: int = DRAFT) -> Guess:
    """Draws from another toy's law, cut to the target ids `q_ids`, with noise of `purpose`."""
    columns = torch.arange(draft_target.vocab_size) if q_ids is None else torch.tensor(q_ids)

    def guess(ops: Ops, prefixes: list[Text], seeds: list[int], indices: list[int], k: int) -> Draft:
        tokens: list[list[int]] = [[] for _ in prefixes]
        q = torch.empty(len(prefixes), k, len(columns))
        for j in range(k):
            rows = [draft_target.row((*p, *t)) for p, t in zip(prefixes, tokens, strict=True)]
            logits = draft_target.rows.flatten(0, 1)[rows]
            q[:, j] = logits[:, columns].softmax(1)
            possible = torch.full_like(logits, -torch.inf).index_copy(1, columns, logits[:, columns])
            ones, positions = [1.0] * len(prefixes), [index + j for index in indices]
            for own, token in zip(
                tokens, ops.draw(possible, ones, seeds, positions, purpose).tolist(), strict=True
            ):
                own.append(token)
        return Draft(tokens, q, None if q_ids is None else columns)

    return guess


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
