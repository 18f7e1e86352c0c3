"""What leaves the engine after a step: outputs for whoever waits, counts for the metrics."""

from __future__ import annotations

from specserve.engine.plan import Plan
from specserve.engine.sequence import Sequence
from specserve.types import Output, StepStats


def take_output(seq: Sequence) -> Output:
    """The news of one sequence since its last output."""
    is_first = seq.num_reported == 0
    tokens = seq.output[seq.num_reported :]
    seq.num_reported = len(seq.output)
    logprobs, seq.logprobs = seq.logprobs, []
    is_finished = seq.is_finished
    return Output(
        request_id=seq.request.request_id,
        index=seq.index,
        token_ids=tokens,
        text=_printable(seq),
        logprobs=logprobs if seq.request.params.logprobs is not None else None,
        prompt_logprobs=seq.prompt_logprobs if is_first else None,
        finish_reason=seq.finish_reason,
        stop_reason=seq.stop_reason,
        num_cached_tokens=seq.num_cached_tokens or 0,
        spec_decode_metrics=seq.spec if is_finished else None,
        stats=seq.finished_stats() if is_finished else None,
        kv_transfer_params=(seq.transfer.told or None) if is_finished else None,
    )


def _printable(seq: Sequence) -> str:
    if seq.stream is None:
        return ""
    text = seq.stream.take()
    return text + seq.stream.finish() if seq.is_finished else text


def record_emission(seq: Sequence, num_emitted: int, now: float, stats: StepStats) -> None:
    """Token counts and latencies of one sequence's step. `now` is on the clock of the arrival."""
    if not num_emitted:  # it ended with an error at once
        seq.last_token = seq.last_token or now
        return
    stats.num_generation_tokens += num_emitted
    if seq.first_token is None:
        seq.first_token = now
        stats.time_to_first_token.append(now - seq.request.arrival)
        stats.num_prompt_tokens += seq.num_prompt
        stats.num_prompt_tokens_cached += seq.num_cached_tokens or 0
    else:
        stats.inter_token_latency.append(now - seq.last_token)
        stats.num_emitting += 1
        stats.num_emitted += num_emitted
    seq.last_token = now


def report(plan: Plan, now: float, stats: StepStats) -> list[Output]:
    """Outputs of all sequences that emitted in this step, their share of the statistics added."""
    outputs = []
    for item in plan.sampling_items:
        seq = item.seq
        record_emission(seq, len(seq.output) - seq.num_reported, now, stats)
        outputs.append(take_output(seq))
        if (finished := outputs[-1].stats) is not None:
            stats.finished.append(finished)
    stats.num_rows = plan.num_rows
    stats.num_trimmed_draft_tokens = plan.num_trimmed_draft_tokens
    stats.num_preemptions = plan.num_preemptions
    stats.prefix_queries = plan.prefix_queries
    stats.prefix_hits = plan.prefix_hits
    return outputs
