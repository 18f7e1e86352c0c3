"""Asks a running server questions, or one that is started for it, and reports how it answered.

    specserve bench serve --backend openai-chat --endpoint /v1/chat/completions \\
        --dataset-name spec_bench --dataset-path question.jsonl --num-prompts -1 --max-concurrency 1

docs/bench.md says what the figures mean.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from specserve.bench.acceptance import from_counters
from specserve.bench.answers import Answer, error_message
from specserve.bench.arrivals import arrival_times
from specserve.bench.asking import Asker, find_tokenizer, given_sampling, read_questions
from specserve.bench.counters import Counters, read_counters, step_figures
from specserve.bench.dataset import Question, load_questions
from specserve.bench.load import Load, ask, run_load
from specserve.bench.progress import progress
from specserve.bench.report import check_file, machine, table_console
from specserve.bench.serve_document import document, save
from specserve.bench.serve_table import block, category_table
from specserve.bench.streams import Server
from specserve.bench.wire import Call, HttpWire, Wire, fetch
from specserve.config.bench_serving import (
    CHAT,
    ENDPOINTS,
    DatasetFlags,
    LaunchFlags,
    ReportFlags,
    ServeFlags,
)
from specserve.config.engine import DEFAULT_MODEL, engine_config
from specserve.config.environment import read_environment
from specserve.config.flags import select
from specserve.config.options import from_mapping
from specserve.config.terminal import SamplingFlags
from specserve.errors import ConfigError

logger = logging.getLogger(__name__)

ADDRESS = ("base_url", "host", "port")
BETWEEN_TRIES = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Run:
    """All that was asked for."""

    serve: ServeFlags
    dataset: DatasetFlags
    sampling: SamplingFlags
    report: ReportFlags
    launch: LaunchFlags

    @property
    def endpoint(self) -> str:
        return self.serve.endpoint or ENDPOINTS[self.serve.backend]


@dataclass(frozen=True, slots=True)
class Found:
    """What a run measured. `counters`: what the server counted meanwhile."""

    model: str
    tokenizer: str | None
    load: Load
    counters: Counters


def run(values: Mapping[str, Any]) -> None:
    """Measure, print and write. Raises any `UserError`."""
    given = read_run(values)
    check_file(given.report.json)
    with server_for(given, values) as url:
        wire = HttpWire(url, _headers(given.serve), insecure=given.serve.insecure)
        found = asyncio.run(measure(wire, given))
    _refuse_failure(found.load.answers)
    figures = document(
        given.serve, given.report, found.load, from_counters(found.counters), step_figures(found.counters)
    )
    figures |= {
        "model_id": found.model,
        "tokenizer_id": found.tokenizer,
        "config": _circumstances(given, url),
    }
    for line in block(figures, given.report.times, given.report.percentiles):
        print(line)
    table_console().print(category_table(figures))
    save(given.report, figures, found.load)


def read_run(values: Mapping[str, Any]) -> Run:
    """Raises `ConfigError`."""
    dataset, sampling = read_questions(values)
    return Run(
        from_mapping(ServeFlags, select(values, ServeFlags)),
        dataset,
        sampling,
        from_mapping(ReportFlags, select(values, ReportFlags)),
        from_mapping(LaunchFlags, select(values, LaunchFlags)),
    )


# --- whom to ask ----------------------------------------------------------------------------------


@contextmanager
def server_for(given: Run, values: Mapping[str, Any]) -> Iterator[str]:
    """The address of the server; one that was started ends with the block."""
    serve, engine = given.serve, select(values, LaunchFlags)
    is_elsewhere = any(key in values for key in ADDRESS)
    if engine.pop("launch", False) and is_elsewhere:
        raise ConfigError("launch starts a server of its own; leave base_url, host and port out.", "launch")
    if is_elsewhere or not (given.launch.launch or engine):
        for key in engine:
            logger.warning("%s has no effect: the server at the given address has its own.", key)
        yield _address(serve, given.endpoint)
        return
    metrics = {"per_request_spec_decode_metrics": "summary"} if given.launch.speculative_config else {}
    with Server(engine_config({"model": serve.model or DEFAULT_MODEL, **engine, **metrics})) as server:
        yield f"http://127.0.0.1:{server.port}"


def _address(serve: ServeFlags, endpoint: str) -> str:
    url = (serve.base_url or f"http://{serve.host}:{serve.port}").rstrip("/")
    return url.removesuffix("/v1") if endpoint.startswith("/v1/") else url


def _headers(serve: ServeFlags) -> dict[str, str]:
    pairs = dict(header.split("=", 1) for header in serve.header)
    return {"Authorization": f"Bearer {read_environment().client_api_key}", **pairs}


# --- asking ---------------------------------------------------------------------------------------


async def measure(wire: Wire, given: Run) -> Found:
    """Ask everything. Raises `ConfigError` when nobody is there, or the dataset cannot be used."""
    serve = given.serve
    before = await _look(wire, serve)
    model = serve.model or await _first_model(wire)
    tokenizer = find_tokenizer(serve.tokenizer, model)
    if tokenizer is None and serve.backend != CHAT:
        logger.warning("No tokenizer of %s is here: no chat template goes around prompts.", model)
    asker = Asker(
        serve.backend,
        serve.served_model_name or model,
        tokenizer,
        given_sampling(given.sampling),
        serve.logprobs,
        serve.chat_template_kwargs,
        {**({"speculation": {}} if before.is_ours else {}), **(serve.extra_body or {})},
    )
    questions = load_questions(given.dataset, serve.seed, tokenizer)
    call = partial(_call, asker, given.endpoint, serve.request_id_prefix or f"bench-{secrets.token_hex(4)}-")
    await _warm_up(wire, questions[0], call, serve)
    requests = [(question, call(question, number)) for number, question in enumerate(questions)]
    before = await _look(wire, serve)
    with progress(len(requests), "Asking", hidden=given.dataset.disable_tqdm) as advance:
        load = await run_load(wire, requests, _arrivals(serve, len(requests)), serve.max_concurrency, advance)
    after = await _look(wire, serve)
    return Found(asker.model, serve.tokenizer or (model if tokenizer else None), load, after.since(before))


def _call(asker: Asker, endpoint: str, prefix: str, question: Question, number: int) -> Call:
    return Call(endpoint, asker.body(question), {"X-Request-Id": quote(f"{prefix}{number}")})


def _arrivals(serve: ServeFlags, count: int) -> list[float]:
    ramp = None
    if serve.ramp_up_strategy is not None:
        first, last = serve.ramp_up_start_rps, serve.ramp_up_end_rps
        assert first is not None
        assert last is not None
        ramp = (serve.ramp_up_strategy, first, last)
    return arrival_times(count, serve.request_rate, burstiness=serve.burstiness, seed=serve.seed, ramp=ramp)


async def _look(wire: Wire, serve: ServeFlags) -> Counters:
    """What the server has counted so far: nothing, if it does not say."""
    try:
        status, text = await fetch(wire, Call("/metrics"))
    except OSError as error:
        where = serve.base_url or f"{serve.host}:{serve.port}"
        raise ConfigError(
            f"Cannot reach {where} ({error}); start `specserve serve`, give the base_url of a server, "
            "or say --launch.",
            "base_url",
        ) from None
    return read_counters(text) if status == 200 else Counters()


async def _first_model(wire: Wire) -> str:
    status, text = await fetch(wire, Call("/v1/models"))
    try:
        return str(json.loads(text)["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise ConfigError(
            f"/v1/models answers {status}: {error_message(text.encode())}; name the model.", "model"
        ) from None


async def _warm_up(
    wire: Wire, question: Question, call: Callable[[Question, int], Call], serve: ServeFlags
) -> None:
    """One answer if readiness is to be checked, then as many as were asked for."""
    now = asyncio.get_running_loop().time
    until = now() + serve.ready_check_timeout_sec
    while serve.ready_check_timeout_sec:
        answer = await ask(wire, question, call(question, -1))
        if not answer.error:
            break
        if now() > until:
            raise ConfigError(
                f"The server did not answer within ready_check_timeout_sec: {answer.error}",
                "ready_check_timeout_sec",
            )
        await asyncio.sleep(BETWEEN_TRIES)
    warm_ups = [(question, call(question, -1))] * serve.num_warmups
    await run_load(wire, warm_ups, [0.0] * len(warm_ups), serve.max_concurrency)


# --- telling --------------------------------------------------------------------------------------


def _refuse_failure(answers: Sequence[Answer]) -> None:
    """All failed: there is nothing to report. Some failed: their first reasons are worth a warning."""
    failed = [answer for answer in answers if answer.error]
    for message in list(dict.fromkeys(answer.error for answer in failed))[:3]:
        logger.warning("A request failed: %s", message)
    if failed and len(failed) == len(answers):
        raise ConfigError(f"All {len(failed)} requests failed, the first one so: {failed[0].error}")


def _circumstances(given: Run, url: str) -> dict[str, Any]:
    flags = {
        name: value
        for part in (given.serve, given.dataset, given.sampling, given.launch)
        for name, value in asdict(part).items()
        if name != "header"
    }
    rate = flags["request_rate"]
    return {**flags, "request_rate": rate if rate != float("inf") else "inf", "url": url, **machine()}
