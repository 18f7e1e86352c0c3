"""The figures of `bench serve` for people: vLLM's block of fifty columns, then a table per category."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from specserve.bench.serving_figures import percentile_name

WIDTH, LABEL = 50, 40
TITLES = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency (per chunk)",
    "e2el": "End-to-end Latency",
}

Figures = Mapping[str, Any]


def block(figures: Figures, times: Sequence[str], percentiles: Sequence[float]) -> Iterator[str]:
    """Lines; `figures` is the whole document."""
    yield f"{' Serving Benchmark Result ':=^{WIDTH}}"
    yield from _counts(figures)
    for name in times:
        yield f"{TITLES[name]:-^{WIDTH}}"
        for word in ("Mean", "Median"):
            yield _row(f"{word} {name.upper()} (ms):", figures[f"{word.lower()}_{name}_ms"])
        for percentile in percentiles:
            label = f"P{percentile:g} {name.upper()} (ms):"
            yield _row(label, figures[percentile_name(percentile, name)])
    yield from _speculation(figures)
    yield "=" * WIDTH


def category_table(figures: Figures) -> Table:
    """One row per category, and all of them at the end. Times are medians."""
    table = Table(title="By category", box=box.SIMPLE)
    table.add_column("category")
    titles = ["requests", "tokens", "tok/s", "TTFT ms", "TPOT ms", "acceptance", "by position, %"]
    for title in [*titles, *(["speed-up"] if "decode_speed_up" in figures else [])]:
        table.add_column(title, justify="right", no_wrap=True)
    for name, own in figures["categories"].items():
        table.add_row(name, *_cells(own))
    table.add_section()
    table.add_row("all", *_cells(figures))
    return table


def percentages(rates: Sequence[float]) -> str:
    return " ".join(f"{100 * rate:.0f}" for rate in rates)


def _cells(own: Figures) -> list[str]:
    length = own.get("spec_decode_acceptance_length")
    speed_up = own.get("decode_speed_up", "")
    return [
        str(own["completed"]),
        str(own["total_output_tokens"]),
        f"{own['output_throughput']:.1f}",
        f"{own['median_ttft_ms']:.1f}",
        f"{own['median_tpot_ms']:.2f}",
        "-" if length is None else f"{length:.2f}",
        percentages(own.get("acceptance_per_position", [])[:8]) or "-",
        *([] if speed_up == "" else ["-" if speed_up is None else f"{speed_up:.2f}"]),
    ]


def _counts(figures: Figures) -> Iterator[str]:
    yield _row("Successful requests:", figures["completed"])
    yield _row("Failed requests:", figures["failed"])
    if figures["max_concurrency"] is not None:
        yield _row("Maximum request concurrency:", figures["max_concurrency"])
    if figures["request_rate"] != "inf":
        yield _row("Request rate configured (RPS):", figures["request_rate"])
    yield _row("Benchmark duration (s):", figures["duration"])
    yield _row("Total input tokens:", figures["total_input_tokens"])
    yield _row("Total generated tokens:", figures["total_output_tokens"])
    yield _row("Request throughput (req/s):", figures["request_throughput"])
    if figures["request_goodput"] is not None:
        yield _row("Request goodput (req/s):", figures["request_goodput"])
    yield _row("Output token throughput (tok/s):", figures["output_throughput"])
    yield _row("Peak output token throughput (tok/s):", figures["max_output_tokens_per_s"])
    yield _row("Peak concurrent requests:", float(figures["max_concurrent_requests"]))
    yield _row("Total token throughput (tok/s):", figures["total_token_throughput"])


def _speculation(figures: Figures) -> Iterator[str]:
    if "spec_decode_acceptance_length" not in figures:
        return
    yield f"{'Speculative Decoding':-^{WIDTH}}"
    yield _row("Acceptance rate (%):", figures["spec_decode_acceptance_rate"])
    yield _row("Acceptance length:", figures["spec_decode_acceptance_length"])
    yield _row("Drafts:", figures["spec_decode_num_drafts"])
    yield _row("Draft tokens:", figures["spec_decode_draft_tokens"])
    yield _row("Accepted tokens:", figures["spec_decode_accepted_tokens"])
    yield "Per-position acceptance (%):"
    for position, rate in enumerate(figures["spec_decode_per_position_acceptance_rates"]):
        yield _row(f"  Position {position}:", 100 * rate)


def _row(label: str, value: float) -> str:
    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{label:<{LABEL}} {text:<{WIDTH - LABEL - 1}}".rstrip()
