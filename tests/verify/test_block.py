"""Block verification: against the paper's formulas written out, and against going token by token."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from specserve.ops.philox import ACCEPT, RESIDUAL, TARGET, block_index, uniforms
from specserve.types import Draft, RowRng, SamplingRows, Verdict
from specserve.verify import block, coupled, standard
from tests.contract.verifier import calls
from tests.support.law import drawn_draft, rows_of, sampled_guesses, toy
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


@pytest.mark.parametrize("k", [1, 3, 6])
def test_it_accepts_at_least_as_much_as_token_by_token(k: int) -> None:
    """The same drawn drafts under the same seeds, judged by both rules; printed (pytest -s)."""
    n, target = 8_000, toy()
    gains: dict[str, float] = {}
    print()
    for name, guess in sampled_guesses(target).items():
        draft = guess(OPS, [()] * n, list(range(n)), [20] * n, k)
        rows = rows_of(target, [()] * n, draft)
        keys = SamplingRows([1.0] * n), RowRng(list(range(n)), [20] * n)
        new, old = (np.array(rule.verify(OPS, rows, draft, *keys).accepted) for rule in (block, standard))
        gain, error = float((new - old).mean()), float((new - old).std() / np.sqrt(n))
        print(
            f"{name:9} k={k} block {new.mean():.4f} standard {old.mean():.4f} gain {gain:+.4f} ± {error:.4f}"
        )
        assert gain > -3 * error if k > 1 else gain == 0.0
        gains[name] = gain / error if error else 0.0
    assert k == 1 or gains["unrelated"] > 3, "a longer block should gain something"
