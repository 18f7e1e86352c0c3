"""Entries as a reply shows them."""

from __future__ import annotations

import pytest
import torch

from specserve.ops import reference_ops
from specserve.sampling.logprobs import gather

OPS = reference_ops()
ROW = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()


def test_the_chosen_token_comes_first_and_then_the_best_ones_in_order() -> None:
    (entry,) = gather(OPS, ROW[None] + 3.0, [2], 2)
    assert list(entry) == [2, 1, 3]
    assert [found.rank for found in entry.values()] == [3, 1, 2]
    assert [found.logprob for found in entry.values()] == pytest.approx(ROW[[2, 1, 3]].tolist(), abs=1e-6)


def test_a_chosen_token_among_the_best_is_listed_once() -> None:
    entries = gather(OPS, ROW.expand(2, 4), [1, 3], 2)
    assert [list(entry) for entry in entries] == [[1, 3], [3, 1]]


def test_zero_gives_the_chosen_token_only_and_minus_one_gives_all() -> None:
    assert [list(entry) for entry in gather(OPS, ROW[None], [0], 0)] == [[0]]
    assert [list(entry) for entry in gather(OPS, ROW[None], [0], -1)] == [[0, 1, 3, 2]]


def test_ties_share_the_worse_rank_even_beyond_the_top() -> None:
    (entry,) = gather(OPS, torch.zeros(1, 5), [4], 2)
    assert {token: found.rank for token, found in entry.items()} == {4: 5, 0: 5, 1: 5}


def test_logits_are_shown_as_they_are() -> None:
    entries = gather(
        OPS, torch.tensor([[1.0, 4.0, 2.0, 3.0], [0.0, 1.0, 1.0, -torch.inf]]), [2, 3], 2, as_logits=True
    )
    assert [[value.logprob for value in entry.values()] for entry in entries] == [
        [2.0, 4.0, 3.0],
        [-torch.inf, 1, 1],
    ]
    assert [[value.rank for value in entry.values()] for entry in entries] == [[3, 1, 2], [4, 2, 2]]


def test_no_rows_give_no_entries() -> None:
    assert gather(OPS, torch.empty(0, 4), [], 3) == []
