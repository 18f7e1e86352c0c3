"""The file of `bench serve`: vLLM's keys and ours, and where it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from specserve.bench.acceptance import Acceptance
from specserve.bench.load import Load
from specserve.bench.report import check_file, write_json
from specserve.bench.serving_figures import Wanted, serving_figures
from specserve.config.bench_serving import ReportFlags, ServeFlags

Figures = dict[str, Any]


def document(
    serve: ServeFlags,
    report: ReportFlags,
    load: Load,
    acceptance: Acceptance | None,
    steps: Mapping[str, Any],
) -> Figures:
    """All but who was asked. `steps` are the means of the server's steps, if it tells them."""
    wanted = Wanted(report.percentiles, report.limits)
    return {
        "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
        "backend": serve.backend,
        "endpoint_type": serve.backend,
        "label": report.label,
        "num_prompts": len(load.answers),
        "request_rate": serve.request_rate if serve.request_rate < float("inf") else "inf",
        "burstiness": serve.burstiness,
        "max_concurrency": serve.max_concurrency,
        **dict(pair.split("=", 1) for pair in report.metadata),
        **serving_figures(load.answers, load.duration, wanted, acceptance=acceptance),
        **steps,
    }


def details(load: Load) -> Figures:
    """Lists with one entry per request, in the order of the questions; times in seconds."""
    answers = load.answers
    return {
        "input_lens": [answer.num_prompt_tokens for answer in answers],
        "output_lens": [answer.num_output_tokens for answer in answers],
        "ttfts": [answer.ttft if answer.chunks else 0.0 for answer in answers],
        "itls": [answer.itls for answer in answers],
        "latencies": [answer.latency for answer in answers],
        "start_times": [answer.sent for answer in answers],
        "generated_texts": [answer.text for answer in answers],
        "errors": [answer.error for answer in answers],
    }


def save(report: ReportFlags, figures: Figures, load: Load) -> None:
    """Raises `ConfigError` for a file that cannot be written."""
    whole = {**figures, **(details(load) if report.save_detailed else {})}
    write_json(report.json, whole)
    if not (report.save_result or report.append_result):
        return
    path = Path(report.result_dir) / (report.result_filename or _file_name(report, figures))
    path.parent.mkdir(parents=True, exist_ok=True)
    check_file(str(path))
    if report.append_result:
        with path.open("a", encoding="utf-8") as file:
            print(json.dumps(whole), file=file)
    else:
        write_json(str(path), whole)


def _file_name(report: ReportFlags, figures: Figures) -> str:
    label = report.label or figures["backend"]
    concurrency = figures["max_concurrency"]
    middle = "" if concurrency is None else f"-concurrency{concurrency}"
    model = str(figures["model_id"]).rstrip("/").rpartition("/")[2]
    return f"{label}-{figures['request_rate']}qps{middle}-{model}-{figures['date']}.json"
