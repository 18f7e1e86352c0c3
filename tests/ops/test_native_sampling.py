"""Native sampling equals its references in every bit, on every instruction set and any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from specserve.ops import Ops, reference_ops
from specserve.ops.draw import gumbel
from specserve.ops.native import make_pool
from specserve.ops.native_sampling import with_native_sampling
from specserve.ops.philox import TARGET, row_words
from tests.support.native import library

REFERENCE = reference_ops()
SIZES = (1, 2, 5, 31, 63, 64, 65, 200, 1000, 4096, 4097, 10_000, 49_152)
MAKERS: list[tuple[str, int]] = [("portable", 1), ("portable", 2), ("best", 1), ("best", 3)]

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy meets inf - inf


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: f"{maker[0]}-{maker[1]}")
def ops(request: pytest.FixtureRequest) -> Ops:
    name, num_threads = request.param
    instruction_set = None if name == "best" else name
    return with_native_sampling(REFERENCE, make_pool(library(), num_threads, instruction_set))


@dataclass(frozen=True)
class Case:
    """Rows of every kind, and a way of sampling for each."""

    logits: Tensor
    random: np.random.Generator

    def pick(self, *values: float) -> list[float]:
        return [float(value) for value in self.random.choice(values, len(self.logits))]

    def below(self, high: int) -> list[int]:
        return self.random.integers(0, high, len(self.logits)).tolist()


def row(random: np.random.Generator, size: int) -> np.ndarray:
    """Flat or sure of itself, with ties, gaps, NaN, infinities; now and then nothing else."""
    x = random.standard_normal(size) * random.choice([0, 0.01, 1, 3, 10, 1e3, 1e7])
    if random.random() < 0.3:
        x = np.round(x * 2) / 2
    if random.random() < 0.3:
        x[random.random(size) < random.random()] = -np.inf
    if random.random() < 0.3:
        x[random.random(size) < random.random() ** 3] = np.nan
    if random.random() < 0.3:
        x[random.random(size) > 20 / size] = -np.inf
    if random.random() < 0.05:
        x[random.integers(size)] = np.inf
    if random.random() < 0.05:
        x[:] = random.choice([np.nan, -np.inf, np.inf, 0.0, -0.0])
    if random.random() < 0.05:
        x += 3e38
    return x.astype(np.float32)


def cases(num_rounds: int) -> list[Case]:
    made = []
    for seed, size in product(range(num_rounds), SIZES):
        random = np.random.default_rng([seed, size])
        rows = np.stack([row(random, size) for _ in range(random.integers(1, 7))])
        made.append(Case(torch.from_numpy(rows), random))
    return made


def same_bits(a: Tensor, b: Tensor) -> bool:
    if a.dtype == torch.float32:
        a, b = a.contiguous().view(torch.int32), b.contiguous().view(torch.int32)
    return torch.equal(a, b)


@pytest.mark.parametrize("size", [1, 17, 4099, 2**18 + 3])
def test_noise_is_that_of_the_definition(size: int) -> None:
    native = library()
    for instruction_set in ("best", *native.instruction_sets):
        sampler = native.Sampler(native.Pool(1), instruction_set)
        for seed, index, purpose in ((0, 0, 0), (2**64 - 1, 2**40 + 5, 3), (2**63 + 11, 2**32 - 1, 255)):
            found = np.empty(size, np.float32)
            sampler.noise(seed, index, purpose, size, found.ctypes.data)
            assert found.tobytes() == gumbel(row_words(seed, index, size, purpose)).tobytes()


def check_draw(ops: Ops, case: Case) -> None:
    arguments = case.pick(0.0, 0.5, 1.0), case.below(2**63), case.below(2**40), int(case.random.integers(9))
    assert ops.draw(case.logits, *arguments).tolist() == REFERENCE.draw(case.logits, *arguments).tolist()


def check_accept(ops: Ops, case: Case) -> None:
    """Sequences of any length, drafts that are right more often than not."""
    num_rows, size = case.logits.shape
    lengths = [n for n in case.random.multinomial(num_rows, [1 / 3] * 3).tolist() if n]
    n = len(lengths)
    keys = case.pick(0.0, 0.7)[:n], case.below(2**63)[:n], case.below(2**40)[:n]
    rows = [[column[i] for i in range(n) for _ in range(lengths[i])] for column in keys[:2]]
    indices = [keys[2][i] + j for i in range(n) for j in range(lengths[i])]
    own = iter(REFERENCE.draw(case.logits, *rows, indices, TARGET).tolist())
    drafts = []
    for length in lengths:
        right = [next(own) for _ in range(length)][:-1]
        wrong = case.random.integers(-1, size + 1, length).tolist()
        drafts.append([a if case.random.random() < 0.7 else b for a, b in zip(right, wrong, strict=False)])
    expected = REFERENCE.accept(case.logits, drafts, *keys, TARGET)
    assert ops.accept(case.logits, drafts, *keys, TARGET) == expected


def check_temper(ops: Ops, case: Case) -> None:
    temperatures = case.pick(0.0, 1.0, 0.7, 0.1, 1e-3, 1.3, 2.0)
    expected = REFERENCE.temper(case.logits.clone(), temperatures)
    assert same_bits(ops.temper(case.logits.clone(), temperatures), expected)


def check_truncate(ops: Ops, case: Case) -> None:
    size = case.logits.shape[1]
    top_k = [int(k) for k in case.pick(0, 1, 2, 5, 50, 500, max(size - 1, 0), size)]
    top_p = case.pick(1.0, 1.0, 0.999999, 0.99, 0.9, 0.5, 0.01, 1e-9)
    min_p = case.pick(0.0, 0.0, 0.05, 1e-3, 0.5, 1.0, 1e-30)
    expected = REFERENCE.truncate(case.logits.clone(), top_k, top_p, min_p)
    assert same_bits(ops.truncate(case.logits.clone(), top_k, top_p, min_p), expected)


def check_logprobs(ops: Ops, case: Case) -> None:
    size = case.logits.shape[1]
    arguments = case.below(size), int(case.random.choice([0, 1, 5, 20, 300, size]))
    expected = REFERENCE.logprobs(case.logits, *arguments)
    for a, b in zip(ops.logprobs(case.logits, *arguments), expected, strict=True):
        assert a.shape == b.shape
        assert same_bits(a, b)


def check_penalize(ops: Ops, case: Case) -> None:
    num_rows, size = case.logits.shape
    pairs = case.random.choice(num_rows * size, min(100, num_rows * size), replace=False)
    entries = pairs // size, pairs % size, case.random.integers(0, 4, len(pairs))
    tensors = [torch.from_numpy(entry) for entry in entries]
    penalties = case.pick(1.0, 1.3, 0.7), case.pick(0.0, 0.3, -1.0), case.pick(0.0, 0.7, -0.2)
    expected = REFERENCE.penalize(case.logits.clone(), *tensors, *penalties)
    assert torch.equal(
        ops.penalize(case.logits.clone(), *tensors, *penalties).nan_to_num(7.0), expected.nan_to_num(7.0)
    )


CHECKS = (check_draw, check_accept, check_temper, check_truncate, check_logprobs, check_penalize)


@pytest.mark.parametrize("check", CHECKS)
def test_an_op_equals_its_reference_on_rows_of_every_kind(
    check: Callable[[Ops, Case], None], ops: Ops
) -> None:
    for case in cases(3):
        check(ops, case)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_an_op_equals_its_reference_on_many_more_rows(check: Callable[[Ops, Case], None], ops: Ops) -> None:
    for case in cases(60):
        check(ops, case)


def test_many_rows_on_many_threads_are_the_same_rows(ops: Ops) -> None:
    """Enough work that the pool shares it out."""
    logits = torch.randn(40, 20_000, generator=torch.Generator().manual_seed(0)) * 3
    n, keys = len(logits), ([1.0] * 40, list(range(40)), list(range(7, 47)), TARGET)
    expected = REFERENCE.draw(logits, *keys).tolist()
    assert ops.draw(logits, *keys).tolist() == expected
    drafts = [[expected[0]], [], *([1, 2, 3, 4] for _ in range(7)), [5]]
    arguments = drafts, [1.0] * 10, list(range(10)), list(range(7, 17)), TARGET
    assert ops.accept(logits, *arguments) == REFERENCE.accept(logits, *arguments)
    truncated = ops.truncate(logits.clone(), [0] * n, [0.9] * n, [0.0] * n)
    assert same_bits(truncated, REFERENCE.truncate(logits.clone(), [0] * n, [0.9] * n, [0.0] * n))
    for a, b in zip(ops.logprobs(logits, expected, 5), REFERENCE.logprobs(logits, expected, 5), strict=True):
        assert same_bits(a, b)


def test_rows_with_gaps_between_them_are_read_and_written_in_place(ops: Ops) -> None:
    wide = torch.randn(6, 200, generator=torch.Generator().manual_seed(1))
    logits = wide[::2, 20:120]
    keys = [1.0] * 3, [1] * 3, [2] * 3, TARGET
    assert ops.draw(logits, *keys).tolist() == REFERENCE.draw(logits, *keys).tolist()
    before, expected = wide.clone(), wide.clone()
    REFERENCE.truncate(expected[::2, 20:120], [5] * 3, [1.0] * 3, [0.0] * 3)
    assert ops.truncate(logits, [5] * 3, [1.0] * 3, [0.0] * 3) is logits
    assert same_bits(wide, expected)
    assert not same_bits(wide, before)


def test_no_rows_give_nothing(ops: Ops) -> None:
    none = torch.empty(0, 9)
    assert ops.draw(none, [], [], [], TARGET).tolist() == []
    assert ops.accept(none, [], [], [], [], TARGET) == ([], [])
    assert ops.truncate(none, [], [], []).shape == (0, 9)
    assert [t.shape for t in ops.logprobs(none, [], 2)] == [(0,), (0, 3), (0, 2), (0, 2)]


@pytest.mark.parametrize("token", [-1, 9, 2**40])
def test_an_id_outside_the_vocabulary_is_an_error_and_no_memory_is_read(ops: Ops, token: int) -> None:
    with pytest.raises(ValueError, match="outside the vocabulary"):
        ops.logprobs(torch.zeros(1, 9), [token], 0)


def test_keys_that_do_not_cover_the_rows_are_an_error(ops: Ops) -> None:
    with pytest.raises(ValueError, match="one key for each"):
        ops.draw(torch.zeros(2, 9), [1.0], [1, 2], [3, 4], TARGET)
    with pytest.raises(ValueError, match="one row for each"):
        ops.accept(torch.zeros(2, 9), [[1], [2]], [1.0] * 2, [1] * 2, [2] * 2, TARGET)
