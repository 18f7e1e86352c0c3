"""Block verification: against the paper's formulas written out, and against going token by token."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from specserve.ops.philox import ACCEPT, RESIDUAL, TARGET, block_index, uniforms
from specserve.types import Draft, RowRng, SamplingRows, Verdict
from specserve.verify import block, coupled, standard
from tests.contract.verifier import calls
from tests.support.law import Toy, drawn_draft, rows_of, sampled, toy
from tests.support.ops import fast_ops

OPS = fast_ops()
V = 6

Probs = NDArray[np.float64]


def written_out(p: Probs, q: Probs, tokens: list[int], u: list[float]) -> tuple[int, Probs | None]:
    """tau and the residual [V] (None: the own token) from p [n + 1, V] and q [n, V], as the paper has it."""
    n = len(tokens)
    product = [1.0]
    for i, token in enumerate(tokens):
        product.append(min(1.0, product[i] * p[i, token] / q[i, token]))
    residuals = [np.maximum(product[i] * p[i] - q[i], 0) for i in range(n)]
    chance = []
    for i in range(1, n):
        rest = residuals[i].sum() + 1 - product[i]
        chance.append(residuals[i].sum() / rest if rest > 0 else 1.0)
    chance.append(product[n])
    tau = max((i for i in range(1, n + 1) if u[i - 1] <= chance[i - 1]), default=0)
    return tau, None if tau == n else residuals[tau]


def run(logits: torch.Tensor, draft: Draft, seed: int, index: int = 20) -> Verdict:
    return block.verify(OPS, logits, draft, SamplingRows([1.0]), RowRng([seed], [index]))


def numbers(seed: int, n: int, index: int = 20) -> list[float]:
    found: list[float] = uniforms([seed] * n, [block_index(index, j) for j in range(n)], ACCEPT).tolist()
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_it_is_the_papers_rule(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    kept = []
    for seed in range(300):
        logits = torch.randn(n + 1, V, generator=generator)
        q = (logits[:n] + torch.randn(n, V, generator=generator) * 0.7).softmax(1)
        tokens = torch.multinomial(q, 1, generator=generator)[:, 0].tolist()
        verdict = run(logits, drawn_draft([tokens], q[None]), seed)
        p = logits.double().softmax(1).numpy()
        tau, residual = written_out(p, q.double().numpy(), tokens, numbers(seed, n))
        kept.append(tau)
        assert verdict.accepted == [tau]
        if residual is None:
            following = OPS.draw(logits[n:], [1.0], [seed], [20 + n], TARGET)
        else:
            row = torch.from_numpy(residual).log().float()[None]
            following = OPS.draw(row, [1.0], [seed], [block_index(20, tau)], RESIDUAL)
        assert verdict.next_tokens == following.tolist()
    assert len(set(kept)) == n + 1


def test_a_reduced_vocabulary_equals_the_full_one_with_zeros() -> None:
    generator = torch.Generator().manual_seed(4)
    ids = torch.tensor([5, 2, 4, 40])  # the target has no id 40
    for seed in range(200):
        logits = torch.randn(4, V, generator=generator)
        q = torch.randn(3, 4, generator=generator).softmax(1)
        full = torch.zeros(3, 41).index_copy(1, ids, q)
        tokens = ids[torch.multinomial(q, 1, generator=generator)[:, 0]].tolist()
        reduced = run(logits, drawn_draft([tokens], q[None], ids), seed)
        assert reduced == run(logits, drawn_draft([tokens], full[None]), seed)


def test_a_failing_first_number_does_not_end_the_block() -> None:
    """p and q that make the first guess doubtful and the second one wanted."""
    p = torch.tensor([[0.1, 0.9], [1.0, 0.0], [0.5, 0.5]])
    q = torch.tensor([[0.5, 0.5], [0.1, 0.9]])
    rescued = 0
    for seed in range(200):
        kept = run(p.log(), drawn_draft([[0, 0]], q[None]), seed).accepted[0]
        fails_alone = numbers(seed, 1)[0] > 0.1 / 0.5
        rescued += kept == 2 and fails_alone
    assert rescued > 20


def test_deterministic_guesses_are_kept_on_equality() -> None:
    for call in calls():
        plain = (call[0], Draft(call[1].tokens), *call[2:])
        assert block.verify(OPS, *plain) == coupled.verify(OPS, *plain)


@pytest.mark.parametrize("filler", [-1, V, 2**40])
def test_a_filler_ends_the_block_before_it(filler: int) -> None:
    """What cannot have been drawn counts as none: the rule sees a shorter block, then the own token comes."""
    generator = torch.Generator().manual_seed(6)
    for seed in range(60):
        logits = torch.randn(5, V, generator=generator)
        q = torch.randn(4, V, generator=generator).softmax(1)
        tokens = torch.multinomial(q, 1, generator=generator)[:, 0].tolist()
        long = run(logits, drawn_draft([[*tokens[:2], filler, tokens[3]]], q[None]), seed)
        short = run(logits[:3], drawn_draft([tokens[:2]], q[None, :2]), seed)
        assert long == short


def test_equal_p_and_q_accept_everything() -> None:
    logits = torch.randn(4, V, generator=torch.Generator().manual_seed(7))
    q = logits[:3].softmax(1)
    for seed in range(100):
        tokens = torch.multinomial(q, 1, generator=torch.Generator().manual_seed(seed))[:, 0].tolist()
        assert run(logits, drawn_draft([tokens], q[None]), seed).accepted == [3]


# --- how much is kept ---------------------------------------------------------------------------

LAWS = {"near": (Toy(toy().rows * 0.8), None), "unrelated": (toy(seed=1), None)}
LAWS |= {"reduced": (toy(3, seed=5), [3, 1, 0]), "foreign": (toy(3, seed=6), [4, 12, 1])}


def expected_kept(
    chance: Callable[[float, float], float], target: Toy, law: Toy, ids: list[int] | None, k: int
) -> float:
    """The mean over all drafts of k guesses. `chance(c, r)` is the probability that a guess and those before
    it are kept, r its p / q, c the same of those before it."""
    p, q = cache(target.probabilities), cache(law.probabilities)

    def behind(text: tuple[int, ...], before: float, left: int) -> float:
        if not left:
            return 0.0
        total = 0.0
        for column, draw in enumerate(q(text)):
            token = ids[column] if ids else column
            kept = chance(before, p(text)[token] / draw if token < target.vocab_size else 0.0)
            total += draw * (kept + behind((*text, token), kept, left - 1))
        return total

    return behind((), 1.0, k)


def by_block(before: float, ratio: float) -> float:
    return min(1.0, before * ratio)


def by_token(before: float, ratio: float) -> float:
    return before * min(1.0, ratio)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_it_accepts_at_least_as_much_as_token_by_token(k: int) -> None:
    """The same drawn drafts under the same seeds, judged by both rules; printed (pytest -s).

    That a block keeps more on average is a theorem, whatever p and q: min(1, c r) >= c min(1, r). For one
    draft and one seed it may keep less. So what is enumerated must be larger, and what is measured must be
    what is enumerated.
    """
    n, target, gains = 4_000, toy(), []
    for name, (law, ids) in LAWS.items():
        exact = [expected_kept(chance, target, law, ids, k) for chance in (by_block, by_token)]
        draft = sampled(law, ids)(OPS, [()] * n, list(range(n)), [20] * n, k)
        rows = rows_of(target, [()] * n, draft)
        keys = SamplingRows([1.0] * n), RowRng(list(range(n)), [20] * n)
        new, old = (np.array(rule.verify(OPS, rows, draft, *keys).accepted) for rule in (block, standard))
        print(
            f"\n{name:9} k={k}  block {new.mean():.4f} ({exact[0]:.4f} exactly)  standard {old.mean():.4f} "
            f"({exact[1]:.4f})  gain {(new - old).mean():+.4f} ({exact[0] - exact[1]:+.4f})",
            end="",
        )
        for found, right in ((new, exact[0]), (old, exact[1]), (new - old, exact[0] - exact[1])):
            assert abs(found.mean() - right) <= 4 * found.std() / np.sqrt(n) + 1e-6
        gains.append(exact[0] / exact[1])
    assert min(gains) >= 1.0 - 1e-12
    assert max(gains) > 1.03 or k == 1
