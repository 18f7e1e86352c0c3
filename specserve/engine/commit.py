"""What a verdict makes true. Every token passes `commit_token`, one at a time, and the cut is decided there.

Most faults of speculative engines in the field come from code that assumes one token per step; nothing
outside this module appends to `tokens` or raises `computed`.
"""

from __future__ import annotations

from collections.abc import Mapping

from specserve.engine.plan import Plan, Scheduled
from specserve.engine.sequence import Sequence
from specserve.sampling.failure import Failure
from specserve.types import Commit, DraftStats, Verdict


def commit_token(seq: Sequence, token: int) -> bool:
    """Append one true token; True when the sequence ends with it.

    Order of the checks: end token, stop ids, stop strings, caps. An end or stop token is part of the
    tokens and of usage; its text is hidden unless asked for. `min_tokens` only exempts stop strings
    here: end tokens below it were masked before the draw.
    """
    seq.tokens.append(token)
    seq.output.append(token)
    count = len(seq.output)
    params = seq.request.params
    is_end = token == seq.eos_token_id
    if is_end or token in seq.stop_token_ids:
        seq.finish_reason = "stop"
        seq.stop_reason = None if is_end else token
        if not params.include_stop_str_in_output:
            return True
    if seq.stream is not None:
        stop = seq.stream.feed(token, check_stop=count > params.min_tokens)
        if stop is not None and not seq.is_finished:
            seq.finish_reason, seq.stop_reason = "stop", stop
    if not seq.is_finished and count >= seq.max_tokens:
        seq.finish_reason = "length"
    return seq.is_finished


def commit_plan(
    plan: Plan, verdict: Verdict, failures: Mapping[int, Failure] | None = None
) -> tuple[list[Commit], list[DraftStats]]:
    """Write one step's result into its sequences; the news for the drafter, and the counts.

    `verdict` covers `plan.sampling_items`, in order, and `failures` has numbers of them.
    """
    commits: list[Commit] = []
    drafts: list[DraftStats] = []
    results = iter(enumerate(zip(verdict.accepted, verdict.next_tokens, strict=True)))
    for item in plan.items:
        if item.samples:
            number, (accepted, next_token) = next(results)
            end = _commit_sampled(item, accepted, next_token, drafts, (failures or {}).get(number))
        else:
            end = item.start + item.num_rows
        item.seq.computed = end
        if end > item.start:  # nothing follows the row of a request that failed at once
            commits.append(_commit(item, end))
    return commits, drafts


def _commit(item: Scheduled, end: int) -> Commit:
    seq = item.seq
    return Commit(
        seq.seq_id,
        item.start,
        end,
        item.row,
        seq.tokens,
        seq.table.pages,
        seq.num_prompt,
        seq.request.tenant,
        seq.num_preemptions,
        seq.transfer,
    )


def _commit_sampled(
    item: Scheduled,
    accepted: int,
    next_token: int,
    drafts: list[DraftStats],
    failure: Failure | None,
) -> int:
    """Commit drafts kept by the rule and the token after them; return up to where rows are true.

    The row of the last known token is true, and those of kept drafts; the next token has no row yet. Token i
    comes from row i: a text that needs the row that failed ends with an error there, as it would without
    guesses.
    """
    seq = item.seq
    known = len(seq.tokens)
    for row, token in enumerate((*item.draft[:accepted], next_token)):
        if failure is not None and row == failure.row:
            seq.finish_reason, seq.stop_reason = "error", failure.reason
            break
        if commit_token(seq, token):
            break
    seq.is_prompt_done = True
    emitted = len(seq.tokens) - known
    kept = min(accepted, emitted)
    if item.draft:
        stats = DraftStats(len(item.draft), kept, accepted - kept, seq.draft_source)
        drafts.append(stats)
        if seq.spec is not None:
            seq.spec.record(stats)
    return known + min(accepted, emitted - 1)
