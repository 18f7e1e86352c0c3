"""A plan as numbers: ids, positions, slots, block tables."""

from __future__ import annotations

from specserve.engine.plan import Plan, Scheduled
from specserve.models.batch import Piece, ragged
from specserve.types import Batch


def build_batch(plan: Plan, page_size: int, vocab_size: int) -> Batch:
    """All rows of the step in one ragged batch; a sequence's rows lie next to each other."""
    pieces = (Piece(_input_ids(item, vocab_size), item.start, item.seq.table.pages) for item in plan.items)
    return ragged(pieces, page_size)


def logits_rows(plan: Plan) -> list[int]:
    """Rows whose logits the verifier needs: the last known token's and every guess's."""
    rows: list[int] = []
    for item in plan.sampling_items:
        end = item.row + item.num_rows
        rows += range(end - 1 - len(item.draft), end)
    return rows


def _input_ids(item: Scheduled, vocab_size: int) -> list[int]:
    """Known tokens, then guesses. A guess outside the vocabulary has no embedding: its row computes
    something, and the verdict, which sees the guess itself, refuses it."""
    known_end = item.start + item.num_rows - len(item.draft)
    guesses = [token if 0 <= token < vocab_size else 0 for token in item.draft]
    return item.seq.tokens[item.start : known_end] + guesses
