"""Log-probabilities of emitted tokens and of prompts. Every emitted token's come from its own row."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from specserve.engine.plan import Plan, Scheduled
from specserve.models.runner import Runner, logits_in_parts
from specserve.types import Logprobs

# (logits [R, V], ids of length R, how many top entries) -> one entry per row
Gather = Callable[[Tensor, list[int], int], list[Logprobs]]


def keep_rows(plan: Plan, logits: Tensor, *, is_final: bool) -> dict[int, Tensor]:
    """Logits rows of whoever asked for logprobs, by `seq_id`; copies where processing will change them."""
    kept: dict[int, Tensor] = {}
    first = 0
    for item in plan.sampling_items:
        num_rows = 1 + len(item.draft)
        if item.seq.request.params.logprobs is not None:
            rows = logits[first : first + num_rows]
            is_safe = is_final or not item.seq.sampling.changes_logits
            kept[item.seq.seq_id] = rows if is_safe else rows.clone()
        first += num_rows
    return kept


def add_logprobs(plan: Plan, kept: dict[int, Tensor], gather: Gather) -> None:
    """After the commit: one entry per token that was kept; rejected and discarded rows give none."""
    for item in plan.sampling_items:
        seq = item.seq
        rows = kept.get(seq.seq_id)
        if rows is not None:
            tokens = seq.output[seq.num_reported :]
            seq.logprobs += gather(rows[: len(tokens)], tokens, seq.request.params.logprobs or 0)


def add_prompt_logprobs(plan: Plan, runner: Runner, gather: Gather) -> None:
    """Before the commit: the prompt rows of this step judge the prompt tokens that follow them."""
    for item in plan.items:
        if item.seq.wants_prompt_logprobs and not item.seq.is_prompt_done:
            _add_chunk(item, runner, gather)


def _add_chunk(item: Scheduled, runner: Runner, gather: Gather) -> None:
    seq = item.seq
    if seq.prompt_logprobs is None:
        seq.prompt_logprobs = [None]  # nothing comes before the first token
    first = len(seq.prompt_logprobs) - 1  # a recomputation after a preemption skips what is there
    end = min(item.start + item.num_rows, seq.num_prompt - 1)
    if first >= end:
        return
    row = item.row + first - item.start
    targets = seq.tokens[first + 1 : end + 1]
    for logits in logits_in_parts(runner, row, row + end - first):
        part, targets = targets[: len(logits)], targets[len(logits) :]
        seq.prompt_logprobs += gather(logits, part, seq.request.params.prompt_logprobs or 0)
