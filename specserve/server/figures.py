"""The figures beside a reply: usage, speculation, llama.cpp's timings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from specserve.types import FinishedStats, SourceCounts, SpecDecodeMetrics


def usage(
    num_prompt: int, num_completion: int, num_cached: int | None, predicted: SourceCounts | None = None
) -> dict[str, Any]:
    """OpenAI's token counts. `num_cached` None leaves the details out; `predicted` counts what was guessed
    from the request's prediction, if it has one."""
    counts: dict[str, Any] = {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
        "prompt_tokens_details": None if num_cached is None else {"cached_tokens": num_cached},
    }
    if predicted is not None:
        accepted = predicted.num_accepted_draft_tokens
        counts["completion_tokens_details"] = {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": predicted.num_draft_tokens - accepted,
        }
    return counts


def speculation(metrics: SpecDecodeMetrics) -> dict[str, Any]:
    """What was used, vLLM's per-request fields, how many accepted drafts the cut at the end took away, and
    the counts of each source."""
    fields: dict[str, Any] = {
        "enabled": metrics.num_spec_tokens > 0,
        "method": metrics.method,
        "mean_acceptance_length": metrics.mean_acceptance_length,
        "draft_acceptance_rate": metrics.draft_acceptance_rate,
        "acceptance_histogram": metrics.acceptance_histogram,
        "acceptance_histogram_by_draft_length": {
            str(length): histogram
            for length, histogram in sorted(metrics.acceptance_histogram_by_draft_length.items())
        },
        "num_spec_steps": metrics.num_spec_steps,
        "num_draft_tokens": metrics.num_draft_tokens,
        "num_accepted_draft_tokens": metrics.num_accepted_draft_tokens,
        "num_discarded_draft_tokens": metrics.num_discarded_draft_tokens,
        "num_spec_tokens": metrics.num_spec_tokens,
        "by_source": {source: asdict(counts) for source, counts in sorted(metrics.by_source.items())},
    }
    if metrics.detailed and metrics.per_step_drafted:
        fields["per_step_accepted"] = metrics.per_step_accepted
        fields["per_step_drafted"] = metrics.per_step_drafted
    return fields


def timings(stats: FinishedStats, metrics: SpecDecodeMetrics | None) -> dict[str, Any]:
    """llama.cpp's: the prompt's part without cached tokens, until the first token; then the rest."""
    num_prompt = stats.num_prompt_tokens - stats.num_cached_tokens
    fields = {
        "cache_n": stats.num_cached_tokens,
        **_phase("prompt", num_prompt, stats.first_token - stats.first_scheduled),
        **_phase("predicted", stats.num_generation_tokens, stats.last_token - stats.first_token),
    }
    if metrics is not None:
        fields["draft_n"] = metrics.num_draft_tokens
        fields["draft_n_accepted"] = metrics.num_accepted_draft_tokens
    return fields


def _phase(name: str, num_tokens: int, seconds: float) -> dict[str, Any]:
    return {
        f"{name}_n": num_tokens,
        f"{name}_ms": 1e3 * seconds,
        f"{name}_per_token_ms": 1e3 * seconds / num_tokens if num_tokens else 0.0,
        f"{name}_per_second": num_tokens / seconds if seconds else 0.0,
    }
