"""Sequences run to their ends at random over a paged cache, as an engine might run them.

Pieces of any size; sequences join late, pause and change places; guesses follow true rows and are written
over by the next ones; a sequence that begins as an earlier one does reads the whole pages of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from specserve.models.runner import Runner
from tests.support.paged import Pages, step

PIECES = (1, 1, 1, 2, 3, 4, 5, 7, 9, 17, 40)


@dataclass(frozen=True)
class Loan:
    """Rows before `end`, a page's start, are those of the sequence `lender`."""

    lender: int
    end: int


def loans(given: Sequence[Sequence[int]], page_size: int) -> list[Loan]:
    """What each sequence has in common with earlier ones, in whole pages; its last row is always its own."""
    found = []
    for number, tokens in enumerate(given):
        best = Loan(number, 0)
        for lender, others in enumerate(given[:number]):
            most = min(len(tokens) - 1, len(others))
            same = next((i for i in range(most) if tokens[i] != others[i]), most)
            end = same // page_size * page_size
            if end > best.end:
                best = Loan(lender, end)
        found.append(best)
    return found


def share(pages: Pages, borrowed: Sequence[Loan]) -> None:
    """Put the lenders' pages into the borrowers' block tables, whose own stay unwritten."""
    for table, loan in zip(pages.tables, borrowed, strict=True):
        count = loan.end // pages.page_size
        table[:count] = pages.tables[loan.lender][:count]


def run_at_random(
    runner: Runner,
    given: Sequence[Sequence[int]],
    pages: Pages,
    borrowed: Sequence[Loan],
    seed: int,
    *,
    most_guesses: int,
) -> list[Tensor]:
    """Logits [n, V] of each sequence's own rows, those past its loan."""
    random = Random(seed)
    computed = [loan.end for loan in borrowed]
    logits: list[list[Tensor]] = [[] for _ in given]
    joins = [random.randrange(4) for _ in given]
    number = 0
    while any(done < len(tokens) for done, tokens in zip(computed, given, strict=True)):
        texts, ends, pieces = [list(tokens) for tokens in given], list(computed), []
        for i in random.sample(range(len(given)), len(given)):
            left, loan = len(given[i]) - computed[i], borrowed[i]
            is_lent = loan.end == 0 or computed[loan.lender] >= loan.end
            if number < joins[i] or not is_lent or not left or not random.randrange(8):
                continue
            ends[i] = computed[i] + min(left, random.choice(PIECES))
            guesses = [
                random.randrange(runner.model.vocab_size) for _ in range(random.randint(0, most_guesses))
            ]
            texts[i] = [*given[i][: ends[i]], *guesses]
            pieces.append((i, computed[i], len(texts[i])))
        for (i, first, _), found in zip(pieces, step(runner, texts, pages, pieces), strict=True):
            logits[i].append(found.logits[: ends[i] - first])
        computed, number = ends, number + 1
    return [torch.cat(parts) for parts in logits]
