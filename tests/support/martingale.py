"""Do emitted tokens have the target's law? A test for texts of any model, each of which is seen only once.

Let x_1, x_2, ... be all tokens an engine emits, p_t the target's final distribution after the true tokens
before x_t, and S_t a set of ids that depends on those tokens alone. If the rule is lossless,

    E[ 1{x_t in S_t} - p_t(S_t) | everything before ] = 0,   with variance p_t(S_t) (1 - p_t(S_t)),

so the sums over t are a martingale, and by its central limit theorem (Brown, "Martingale central limit
theorems", 1971) z tends to the standard normal law:

    z = sum of (1{x_t in S_t} - p_t(S_t)) / sqrt(sum of p_t(S_t) (1 - p_t(S_t)))

That holds for any sets. These show what goes wrong in speculation, q_t being what a guess at t is drawn from:

    A = {x: q(x) > p(x)}, what a rule must sometimes refuse; of a deterministic guess d it is {d}
    B = among all other ids those the drafter ranks highest, up to half of the p of all others

A rule too lenient, or a number of guesses chosen after the draw, changes how often A is hit. What replaces a
refused guess lies outside A, so noise shared by guess and residual leaves A alone. But that a guess won the
draw says that other ids of large q had little noise, and they replace it too seldom: B sees that.

Three traps. All emitted tokens count, not those of verifications only: which these are depends on draws. The
guess that was drawn must not shape the sets: the emitted token is rightly correlated with it. And a text may
end by what was emitted, never by what was guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specserve.bench.fidelity import Sample
from specserve.draft.base import SYNCED_ALWAYS
from specserve.engine.engine import Engine
from specserve.ops import Ops
from specserve.ops.philox import RESIDUAL
from specserve.types import AskBatch, CommitBatch, Draft, Needs, Request
from specserve.verify import Verify, block, coupled, standard
from tests.support import broken, law
from tests.support.engine import Run, step
from tests.support.law import Choose, Guess, chosen


@dataclass
class Sum:
    """Of one kind of set, over tokens."""

    num_hits: int = 0
    expected: float = 0.0
    variance: float = 0.0

    def add(self, chance: Tensor, is_hit: Tensor) -> None:
        """p(S) and whether the emitted token is in S, of each token [n]."""
        self.num_hits += int(is_hit.sum())
        self.expected += float(chance.sum())
        self.variance += float((chance * (1 - chance)).sum())

    @property
    def z(self) -> float:
        return (self.num_hits - self.expected) / math.sqrt(self.variance)


@dataclass
class Sums:
    a: Sum = field(default_factory=Sum)
    b: Sum = field(default_factory=Sum)
    num_tokens: int = 0

    def __str__(self) -> str:
        share_a, share_b = (100 * one.expected / self.num_tokens for one in (self.a, self.b))
        return (
            f"z_A {self.a.z:+6.2f}  z_B {self.b.z:+6.2f}  {self.num_tokens} tokens, "
            f"p(A) {share_a:.0f} %, p(B) {share_b:.0f} %"
        )


@dataclass(frozen=True)
class Law:
    """Both sides of speculation after true tokens, without an engine.

    `target` gives the raw logits [n, V] from which the answer's tokens are drawn, in parts, in one pass over
    the finished text. `draft` gives a drafter's logits [n, Vd] after each of n texts, column c being id
    `ids[c]`. Temperature and top_k are the request's; a drafter that takes its best id is not `is_drawn`.
    """

    target: Callable[[Sample], Iterable[Tensor]]
    draft: Callable[[Sequence[Sequence[int]]], Tensor]
    ids: Tensor
    temperature: float = 1.0
    top_k: int = 0
    is_drawn: bool = True

    def target_probs(self, logits: Tensor) -> Tensor:
        """[n, Vd] float64: p of the ids the drafter knows."""
        final = logits / self.temperature
        if self.top_k:
            least = final.topk(self.top_k).values[:, -1:]
            final = final.masked_fill(final < least, -torch.inf)
        return (final[:, self.ids] - final.logsumexp(1, keepdim=True)).double().exp()

    def draft_probs(self, logits: Tensor) -> Tensor:
        """[n, Vd] float64."""
        if self.is_drawn:
            return (logits.double() / self.temperature).softmax(1)
        return torch.nn.functional.one_hot(logits.argmax(1), logits.shape[1]).double()


def sets(p: Tensor, q: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Masks of A and B [n, Vd] from p, q and the drafter's scores, all by its columns. Ids that it does not
    know are in neither; they are among the others whose p limits B."""
    in_a = q > p
    rest = torch.where(in_a, 0.0, p)
    limit = (1 - torch.where(in_a, p, 0.0).sum(1, keepdim=True)) / 2
    order = scores.masked_fill(in_a, -torch.inf).argsort(dim=1, descending=True, stable=True)
    in_time = rest.gather(1, order).cumsum(1) <= limit
    return in_a, torch.zeros_like(in_a).scatter(1, order, in_time) & ~in_a


def measure(law: Law, samples: Iterable[Sample]) -> Sums:
    sums = Sums()
    for sample in samples:
        end = len(sample.prompt)
        text = [*sample.prompt, *sample.answer]
        for logits in law.target(sample):
            prefixes = [text[:i] for i in range(end, end + len(logits))]
            emitted = torch.tensor(text[end : end + len(logits)])
            _add(sums, law, logits, law.draft(prefixes), emitted)
            end += len(logits)
        assert end == len(text)
    return sums


def _add(sums: Sums, law: Law, target: Tensor, draft: Tensor, emitted: Tensor) -> None:
    p = law.target_probs(target)
    is_column = law.ids == emitted[:, None]
    for one, mask in zip((sums.a, sums.b), sets(p, law.draft_probs(draft), draft), strict=True):
        one.add(torch.where(mask, p, 0.0).sum(1), (mask & is_column).any(1))
    sums.num_tokens += len(emitted)


# --- rules, right and wrong --------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """A rule, how its drafter chooses, and what becomes of the choice."""

    verify: Verify
    choose: Choose
    change: Callable[[Guess], Guess] = lambda guess: guess

    @property
    def is_drawn(self) -> bool:
        return self.choose is not law.greedy

    def guess(self, of: Law) -> Guess:
        return self.change(chosen(of.draft, of.ids, self.choose, of.temperature))


LOSSLESS = {
    "standard, one-hot": Way(standard.verify, law.greedy),
    "standard, drawn": Way(standard.verify, law.probabilistic),
    "block, drawn": Way(block.verify, law.probabilistic),
    "coupled": Way(coupled.verify, law.coupled),
}
BIASED = {
    "k chosen after the draw, standard": Way(standard.verify, law.probabilistic, broken.stops_when_unsure),
    "k chosen after the draw, block": Way(block.verify, law.probabilistic, broken.stops_when_unsure),
    "draft and residual share noise": Way(standard.verify, broken.with_noise_of(RESIDUAL)),
}


def check_unbiased(sums: Sums) -> None:
    assert abs(sums.a.z) < 4, sums
    assert abs(sums.b.z) < 4, sums


def check_biased(name: str, sums: Sums) -> None:
    if name == "draft and residual share noise":
        assert abs(sums.a.z) < 4, "A cannot see it"
        assert sums.b.z < -4, sums
    else:
        assert max(abs(sums.a.z), abs(sums.b.z)) > 4, sums


# --- texts ------------------------------------------------------------------------------------


class GuessDrafter:
    """`guess` as a drafter of an engine. It is always asked for the most that any sequence wants: how many
    guesses a sequence gets changes none of them."""

    needs = Needs()

    def __init__(self, ops: Ops, guess: Guess) -> None:
        self._ops = ops
        self._guess = guess

    def observe(self, commits: CommitBatch) -> None:
        return

    def propose(self, asks: AskBatch) -> Draft:
        prefixes = [tuple(ask.tokens) for ask in asks.asks]
        seeds, firsts = [ask.seed for ask in asks.asks], [len(prefix) for prefix in prefixes]
        most = max(ask.num_tokens for ask in asks.asks)
        draft = self._guess(self._ops, prefixes, seeds, firsts, most)
        cut = [tokens[: ask.num_tokens] for tokens, ask in zip(draft.tokens, asks.asks, strict=True)]
        if draft.q is None:
            return Draft(cut)
        q = [own and own.cut(len(tokens)) for own, tokens in zip(draft.q, cut, strict=True)]
        return Draft(cut, q)

    def synced(self, seq_id: int) -> int:
        return SYNCED_ALWAYS

    def forget(self, seq_ids: list[int]) -> None:
        return


def emit(
    engine: Engine, requests: Iterator[Request], num_tokens: int, num_together: int
) -> tuple[list[Sample], Run]:
    """Start requests, `num_together` at a time, until they have emitted `num_tokens`; finish all of them."""
    found, prompts = Run(), {}
    num_emitted, num_open = 0, 0
    while True:
        while num_emitted < num_tokens and num_open < num_together:
            request = next(requests)
            engine.add(request)
            prompts[request.request_id] = request.prompt_token_ids
            num_open += 1
        if not num_open:
            break
        for output in step(engine, found):
            num_emitted += len(output.token_ids)
            num_open -= output.finish_reason is not None
    return [Sample(prompt, found[name].token_ids) for name, prompt in prompts.items()], found
