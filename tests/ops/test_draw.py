"""Noise: exact formulas, finite, the same anywhere. Draws: the argmax, in range, with the right law."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from specserve.ops import draw
from specserve.ops.draw import MAX_W, gumbel
from specserve.ops.philox import DRAFT, TARGET, row_words
from tests.support.law import check_law

EXTREMES = [0, 1, 2, 2**31 - 1, 2**31, 2**32 - 129, 2**32 - 128, 2**32 - 2, 2**32 - 1]


def hashes(n: int, seed: int = 0) -> np.ndarray:
    """Words all over the range, dense near both ends and near the borders of the logarithm's pieces."""
    random = np.random.default_rng(seed)
    border = np.rint((1 - 0.5**0.5) * 2**32).astype(np.int64) + np.arange(-2000, 2000)
    unit = np.rint((1 - np.exp(-1)) * 2**32).astype(np.int64) + np.arange(-2000, 2000) * 64
    spread = [random.integers(0, 2**32, n), (random.random(n) ** 9 * 2**32).astype(np.int64)]
    top = 2**32 - 1 - np.arange(5000)
    return np.concatenate([EXTREMES, *spread, top, border, unit]).astype(np.uint64)


def test_noise_is_within_a_few_ulp_of_the_true_logarithms() -> None:
    r = hashes(200_000)
    w = np.minimum(((r + 0.5) * 2.0**-32).astype(np.float32), MAX_W).astype(np.float64)
    truth = -np.log(-np.log1p(-w))
    # An error of n ulp in -ln(1 - w) is one of n 2^-24 in its logarithm: absolute, where the result is small.
    error = np.abs(gumbel(r) - truth) / np.spacing(np.maximum(np.abs(truth), 1.0).astype(np.float32))
    assert error.max() < 4.0


def test_noise_is_finite_and_bounded_for_every_kind_of_hash() -> None:
    noise = gumbel(hashes(200_000, seed=1))
    assert np.isfinite(noise).all()
    assert noise.min() >= -2.9
    assert noise.max() <= 22.9
    assert gumbel(np.array([0], np.uint64))[0] == noise.max()


def test_smaller_words_never_have_less_noise() -> None:
    r = np.sort(hashes(200_000, seed=2))
    assert (np.diff(gumbel(r)) <= 0).all()


def scalar_gumbel(word: int) -> np.float32:
    """The same formulas one float32 operation at a time."""
    f = np.float32

    def split(x: np.float32) -> tuple[np.float32, np.float32]:
        m, e = np.frexp(x)
        m, e = (m * f(2), e - 1) if m < f(0.5**0.5) else (m, e)
        return f(e), f(m)

    def log(e: np.float32, a: np.float32) -> np.float32:
        s = a / (a + f(2))
        z = s * s
        series = f(2 / 9) * z
        for n in (7, 5, 3):
            series = (series + f(2 / n)) * z
        return e * f(355 / 512) + (e * f(0.6931471805599453 - 355 / 512) + (series + f(2)) * s)

    w = min(f((word + 0.5) / 2**32), f(1 - 2**-24))
    e, m = split(f(1) - w)
    e, m = split(-log(e, -w if e == 0 else m - f(1)))
    return -log(e, m - f(1))


def test_noise_equals_its_scalar_twin_bit_for_bit_wherever_it_stands() -> None:
    r = hashes(300, seed=3)[::7]
    expected = np.array([scalar_gumbel(int(word)) for word in r], np.float32)
    assert gumbel(r).tobytes() == expected.tobytes()
    for start, stop in ((1, 8), (3, 40), (5, 6), (0, len(r) - 1)):
        assert gumbel(r[start:stop]).tobytes() == expected[start:stop].tobytes()


# --- draws ------------------------------------------------------------------------------------


def plain_argmax(logits: Tensor, seeds: list[int], indices: list[int], purpose: int) -> list[int]:
    """The definition, noise for every id of every row."""
    rows = torch.where(logits.isnan(), -torch.inf, logits).numpy()
    return [
        int((row + gumbel(row_words(seeds[r], indices[r], len(row), purpose))).argmax())
        for r, row in enumerate(rows)
    ]


def wide_logits(num_rows: int = 6, vocab_size: int = 9001) -> Tensor:
    logits = torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(5)) * 3
    logits[1] *= 50  # sure of itself
    logits[2] = 0.25  # flat: only noise decides
    logits[3, ::2] = -torch.inf
    logits[4, 40:] = -torch.inf  # few candidates
    logits[5, ::5] = torch.nan
    return logits


def test_random_rows_are_the_argmax_of_logits_plus_noise() -> None:
    logits = wide_logits()
    for seed in range(40):
        seeds, indices = [seed + 2**40 * r for r in range(6)], [seed * 7 + r for r in range(6)]
        found = draw.reference(logits, [0.8] * 6, seeds, indices, TARGET).tolist()
        assert found == plain_argmax(logits, seeds, indices, TARGET)


def test_large_logits_lose_nothing_to_rounding() -> None:
    logits = (wide_logits()[:3] * 1e6).round() / 4 + 3e7  # sums round to multiples of 2 and 4: many ties
    for seed in range(20):
        found = draw.reference(logits, [1.0] * 3, [seed] * 3, [1, 2, 3], TARGET).tolist()
        assert found == plain_argmax(logits, [seed] * 3, [1, 2, 3], TARGET)


def test_greedy_rows_take_the_best_id_and_the_lowest_of_equals() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [2.0, 5.0, 5.0], [torch.nan, 1.0, 1.0], [-torch.inf, -3.0, -3.0]])
    assert draw.reference(logits, [0.0] * 4, [1] * 4, [9] * 4, TARGET).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("vocab_size", [1, 5, 8192, 10_000])
def test_ids_stay_in_range_when_nothing_is_possible(temperature: float, vocab_size: int) -> None:
    rows = [torch.full((vocab_size,), value) for value in (torch.nan, -torch.inf, torch.inf)]
    mixed = torch.full((vocab_size,), torch.nan)
    mixed[-1] = -torch.inf
    found = draw.reference(torch.stack([*rows, mixed]), [temperature] * 4, [3] * 4, [4] * 4, TARGET)
    assert found.tolist() == [0] * 4


@pytest.mark.parametrize("vocab_size", [5, 8192, 10_000])
def test_what_is_impossible_is_never_drawn(vocab_size: int) -> None:
    logits = torch.full((64, vocab_size), -torch.inf)
    logits[:, 3] = -1e30
    logits[:, 0] = torch.nan
    assert draw.reference(logits, [1.0] * 64, list(range(64)), [0] * 64, TARGET).tolist() == [3] * 64
    logits[:, 2] = torch.inf
    assert draw.reference(logits, [1.0] * 64, list(range(64)), [0] * 64, TARGET).tolist() == [2] * 64


def test_a_draw_does_not_depend_on_its_neighbours_or_on_the_batch() -> None:
    logits = wide_logits()
    temperatures, seeds, indices = [0.8, 0.0, 1.0, 0.7, 1.0, 0.6], [4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6]
    together = draw.reference(logits, temperatures, seeds, indices, DRAFT).tolist()
    for r in range(6):
        assert draw.reference(
            logits[r : r + 1], [temperatures[r]], [seeds[r]], [indices[r]], DRAFT
        ).tolist() == [together[r]]


def test_the_argument_is_left_alone() -> None:
    logits = wide_logits()
    before = logits.clone()
    draw.reference(logits, [0.8, 0.0] * 3, [1] * 6, [2] * 6, TARGET)
    assert torch.equal(logits.view(torch.int32), before.view(torch.int32))


def test_no_rows_give_no_tokens() -> None:
    assert draw.reference(torch.empty(0, 7), [], [], [], TARGET).tolist() == []


@pytest.mark.parametrize("by", ["seed", "index"])
def test_frequencies_follow_softmax_over_seeds_and_over_indices(by: str) -> None:
    n = 60_000
    p = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0])
    running, fixed = list(range(n)), [12345] * n
    seeds, indices = (running, fixed) if by == "seed" else (fixed, running)
    found = draw.reference(p.log().expand(n, 5), [1.0] * n, seeds, indices, TARGET)
    check_law(np.bincount(found.numpy(), minlength=5), p.double().numpy())


def test_neighbouring_draws_are_independent() -> None:
    n = 40_000
    logits = torch.zeros(n, 4)
    tokens = draw.reference(logits, [1.0] * n, [7] * n, list(range(n)), TARGET).numpy()
    pairs = np.bincount(tokens[:-1] * 4 + tokens[1:], minlength=16)
    check_law(pairs, np.full(16, 1 / 16))
    other = draw.reference(logits, [1.0] * n, [7] * n, list(range(n)), DRAFT).numpy()
    check_law(np.bincount(tokens * 4 + other, minlength=16), np.full(16, 1 / 16))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator")
def test_another_device_draws_the_same_tokens() -> None:
    logits = wide_logits()
    for temperature in (0.0, 0.8):
        arguments = [temperature] * 6, [1] * 6, [2, 3, 4, 5, 6, 7], TARGET
        there = draw.reference(logits.to(torch.accelerator.current_accelerator()), *arguments)
        assert there.device.type != "cpu"
        assert there.tolist() == draw.reference(logits, *arguments).tolist()
