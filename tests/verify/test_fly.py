"""The lossy window rule: published cases, and `standard` where nothing may be deferred."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch

from specserve.types import Draft, RowRng, SamplingRows, Verdict
from specserve.verify import Verify, standard
from specserve.verify.drawn import softmax
from specserve.verify.fly import Options, entropy, scan, verify
from tests.contract.verifier import calls
from tests.support.law import deterministic_guesses, drawn_draft, sampled_guesses, texts, toy
from tests.support.ops import fast_ops

OPS = fast_ops()
V = 10


def rule(window: int = 2, threshold: float = 0.0, top_k: int = 3) -> Verify:
    return partial(verify, Options(window, threshold, top_k))


def emitted(
    tokens: Sequence[int], best: Sequence[int], by: Verify, *, masked: int | None = None
) -> list[int]:
    """Greedy. The best token of row i is `best[i]`; the others are a little less likely."""
    logits = torch.zeros(len(best), V)
    logits[range(len(best)), list(best)] = 0.5
    if masked is not None:
        logits[:, masked] = -torch.inf
    verdict = by(OPS, logits, Draft([list(tokens)]), SamplingRows([0.0]), RowRng([0], [5]))
    return [*tokens[: verdict.accepted[0]], verdict.next_tokens[0]]


def test_a_refused_guess_stays_when_the_window_behind_it_is_native() -> None:
    assert emitted([1, 2, 3, 4], [9, 2, 3, 4, 5], rule()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("tokens", "best", "options", "masked"),
    [
        ([1, 2, 3, 4], [9, 2, 3, 4, 5], {"threshold": 2.0}, None),  # the target is sure enough
        ([1, 2, 3, 4], [9, 2, 3, 4, 5], {}, 1),  # the target does not allow it
        ([1, 2, -1, 4], [9, 2, 3, 4, 5], {}, None),  # a filler in the window
        ([1, 2], [9, 2, 3], {}, None),  # the window leaves the block: the token after it does not count
        ([1, 7, 3, 4], [9, 2, 3, 4, 5], {}, None),  # refused again inside the window
        ([-1, 2, 3, 4], [9, 2, 3, 4, 5], {}, None),  # a filler is nobody's guess
        ([V, 2, 3, 4], [9, 2, 3, 4, 5], {}, None),
    ],
)
def test_otherwise_it_ends_the_block(
    tokens: list[int], best: list[int], options: dict[str, float], masked: int | None
) -> None:
    assert emitted(tokens, best, rule(**options), masked=masked) == [9]  # type: ignore[arg-type]


def test_a_failed_window_recovers_at_its_own_row() -> None:
    assert emitted([1, 2, 3, 4, 5, 6], [1, 9, 8, 4, 5, 6, 7], rule()) == [1, 9]


NATIVE = [  # native or not, window, kept
    ("n.nn.nnn", 2, 8),
    (".nn.nnn", 2, 7),
    (".nn.n", 2, 3),
    (".n.nn", 2, 0),
    (".nnn", 3, 4),
    (".nn", 3, 0),
    ("..nn", 1, 0),
    ("nnn", 2, 3),
    ("", 1, 0),
]


@pytest.mark.parametrize(("native", "window", "kept"), NATIVE)
def test_scanning_goes_on_behind_a_deferred_guess(native: str, window: int, kept: int) -> None:
    assert scan([sign == "n" for sign in native], window, lambda _: True) == kept
    assert scan([sign == "n" for sign in native], window, lambda _: False) == len(native.split(".")[0])


@pytest.mark.parametrize("top_k", [1, 2, 3, 5, 99])
def test_the_entropy_is_that_of_the_most_likely_tokens(top_k: int) -> None:
    logits = torch.randn(7, generator=torch.Generator().manual_seed(1)).numpy()
    p = np.sort(np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum())[::-1][:top_k]
    assert entropy(softmax(logits), top_k) == pytest.approx(-(p * np.log(p)).sum(), rel=1e-5)
    assert entropy(softmax(np.array([0, -np.inf, -np.inf], np.float32)), top_k) == 0.0


def test_an_endless_threshold_is_standard_bit_for_bit() -> None:
    never = rule(1, math.inf)
    for call in calls():
        assert never(OPS, *call) == standard.verify(OPS, *call)
    target = toy()
    for guess in (*deterministic_guesses(target).values(), *sampled_guesses(target).values()):
        found = [
            texts(OPS, by, target, guess, k=4, horizon=6, seeds=range(400)) for by in (never, standard.verify)
        ]
        assert found[0] == found[1]


def test_a_window_that_never_fits_is_standard_too() -> None:
    for call in calls():
        assert rule(6)(OPS, *call) == standard.verify(OPS, *call)


def kept(verdicts: Verdict) -> float:
    return float(np.mean(verdicts.accepted))


def test_drawn_guesses_are_native_by_the_probability_ratio_and_keep_more() -> None:
    n, k = 4_000, 4
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(k + 1, V, generator=generator)
    q = (logits[:k] + torch.randn(k, V, generator=generator)).softmax(1)
    tokens = torch.stack([torch.multinomial(row, n, replacement=True, generator=generator) for row in q], 1)
    draft = drawn_draft(tokens.tolist(), q.expand(n, k, V))
    call = logits.repeat(n, 1), draft, SamplingRows([1.0] * n), RowRng(list(range(n)), [3] * n)
    loose, strict = rule(1, 0.5)(OPS, *call), standard.verify(OPS, *call)
    assert kept(loose) > 1.2 * kept(strict)
    pairs = zip(loose.accepted, strict.accepted, strict=True)
    assert all(more >= less for more, less in pairs)
    same = [i for i in range(n) if loose.accepted[i] == strict.accepted[i]]
    assert all(loose.next_tokens[i] == strict.next_tokens[i] for i in same)


def test_greedy_and_random_sequences_share_a_batch() -> None:
    logits = torch.zeros(10, V)
    logits[range(5), [9, 2, 3, 4, 5]] = 0.5
    own = [OPS.draw(logits[5:], [1.0] * 5, [1] * 5, [7, 8, 9, 10, 11], 0).tolist()][0]
    wrong = [(own[0] + 1) % V, *own[1:4]]
    draft, sampling = Draft([[1, 2, 3, 4], wrong]), SamplingRows([0.0, 1.0])
    verdict = rule()(OPS, logits, draft, sampling, RowRng([1, 1], [7, 7]))
    assert verdict == Verdict([4, 4], [5, own[4]])
