"""Masses against the exponential, and against a scalar twin."""

from __future__ import annotations

import math

import numpy as np

from specserve.ops.mass import UNIT, log_total, masses

BEST = np.float32(7.25)


def depths(n: int = 200_000) -> np.ndarray:
    """Logits at and below BEST, dense near it and near the borders where the power of two changes."""
    random = np.random.default_rng(0)
    borders = (np.arange(45)[:, None] + 0.5) * math.log(2) + np.linspace(-1e-5, 1e-5, 101)
    spread = [
        random.random(n) * 30,
        random.random(n) ** 6 * 30,
        borders.ravel(),
        [0.0, 28.4, 28.5, 29, 1e30, math.inf],
    ]
    return (BEST - np.concatenate(spread)).astype(np.float32)


def test_masses_are_the_exponential_in_whole_units() -> None:
    logits = depths()
    depth = (BEST - logits).astype(np.float64)
    truth = np.exp(-depth)
    error = np.abs(masses(logits, BEST) * UNIT - truth)
    assert (error <= truth * (3e-7 + 1e-7 * np.minimum(depth, 30)) + UNIT / 2).all()


def scalar_mass(logit: float, best: float) -> int:
    """The same formulas one float32 operation at a time."""
    f = np.float32
    y = max(f(logit) - f(best), f(-29)) * f(1 / math.log(2))
    n = round(float(y))
    r = y - f(n)
    p = f(math.log(2) ** 6 / 720)
    for k in (5, 4, 3, 2, 1, 0):
        p = p * r + f(math.log(2) ** k / math.factorial(k))
    return round(math.ldexp(float(p), n + 40))


def test_masses_equal_their_scalar_twin_bit_for_bit_wherever_they_stand() -> None:
    logits = depths(300)[::7]
    expected = [scalar_mass(float(x), float(BEST)) for x in logits]
    assert masses(logits, BEST).tolist() == expected
    for start, stop in ((1, 8), (3, 40), (5, 6)):
        assert masses(logits[start:stop], BEST).tolist() == expected[start:stop]


def test_the_best_one_has_mass_one_and_impossible_ones_none() -> None:
    assert masses(np.array([BEST, -np.inf, -3e38], np.float32), BEST).tolist() == [2**40, 0, 0]


def test_a_total_has_the_precision_of_float32_at_any_size_and_in_any_order() -> None:
    random = np.random.default_rng(1)
    for size, scale in ((1, 1.0), (7, 3.0), (49_152, 0.0), (49_152, 3.0), (262_144, 0.1), (262_144, 4.0)):
        logits = (random.standard_normal(size) * scale).astype(np.float32)
        exact = np.logaddexp.reduce(logits.astype(np.float64))
        total = log_total(logits, logits.max())
        assert abs(total - exact) < 3e-7
        assert total == log_total(random.permutation(logits), logits.max())


def test_even_the_flattest_row_of_a_million_ids_does_not_overflow() -> None:
    assert log_total(np.zeros(2**20, np.float32), np.float32(0)) == math.log(2**20)
