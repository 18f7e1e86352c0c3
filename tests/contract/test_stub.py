"""The stub target notices what it is there for: rows that are missing, stale, or another sequence's."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from specserve.types import LayerCache, Rows
from tests.support.stub import StubModel, fixed_rule, script_rule

MODEL = StubModel()
TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
PAGES = [5, 2, 7]


def empty() -> LayerCache:
    return LayerCache(torch.full((32, 1, 1), torch.nan), torch.full((32, 1, 1), torch.nan))


def rows(ids: list[int], start: int, pages: list[int] = PAGES) -> Rows:
    positions = list(range(start, start + len(ids)))
    slots = [pages[p // 4] * 4 + p % 4 for p in positions]
    tensors = [torch.tensor(values) for values in (ids, positions, slots)]
    return Rows(*tensors, [0, len(ids)], [start + len(ids)], [pages], 4)


def last_logits(cache: LayerCache, ids: list[int], start: int, pages: list[int] = PAGES) -> np.ndarray:
    hidden, _ = MODEL.forward(rows(ids, start, pages), [cache])
    return MODEL.logits(hidden)[-1].numpy()


@pytest.mark.parametrize("chunk", [1, 2, 3, 11])
def test_chunks_of_any_size_give_the_same_logits(chunk: int) -> None:
    cache = empty()
    for start in range(0, len(TEXT), chunk):
        got = last_logits(cache, TEXT[start : start + chunk], start)
    assert np.array_equal(got, MODEL.row(TEXT))


def test_every_row_of_a_chunk_is_its_own_context() -> None:
    hidden, features = MODEL.forward(rows(TEXT, 0), [empty()], features=(2, 5))
    for position in range(len(TEXT)):
        assert np.array_equal(hidden[position].numpy(), MODEL.row(TEXT[: position + 1]))
    assert features is not None
    assert torch.equal(features, torch.cat([hidden + 2, hidden + 5], dim=1))


@pytest.mark.parametrize("stale", range(10))
def test_one_stale_row_anywhere_changes_the_answer(stale: int) -> None:
    cache = empty()
    wrong = [*TEXT[:stale], TEXT[stale] ^ 8, *TEXT[stale + 1 :]]
    last_logits(cache, wrong[:10], 0)
    assert not np.array_equal(last_logits(cache, TEXT[10:], 10), MODEL.row(TEXT))


def test_rows_never_written_raise() -> None:
    cache = empty()
    last_logits(cache, TEXT[:4], 0)
    with pytest.raises(AssertionError, match="position 4 holds the row of nan"):
        last_logits(cache, TEXT[8:], 8)


def test_rows_of_another_page_raise() -> None:
    cache = empty()
    last_logits(cache, TEXT[:8], 0)
    with pytest.raises(AssertionError, match="position 0 holds the row of 4"):
        last_logits(cache, TEXT[8:], 8, [2, 5, 7])


def test_two_rows_in_one_slot_raise() -> None:
    with pytest.raises(AssertionError, match="share a slot"):
        last_logits(empty(), TEXT[:8], 0, [5, 5])


def test_text_repeats_itself_but_not_forever() -> None:
    text = MODEL.continuation([1, 2, 3], 200)
    pairs = list(pairwise(text))
    assert len(set(pairs)) < 150
    assert len(set(text)) > 8


def test_scripted_and_fixed_rules_say_what_they_are_told() -> None:
    assert StubModel(script_rule([[1, 7, 9], [2, 8]])).continuation([1], 2) == [7, 9]
    fixed = StubModel(fixed_rule([0.0, 2.0], by_last={1: [3.0, 0.0]}), vocab_size=2)
    assert fixed.continuation([0], 4) == [1, 0, 1, 0]
