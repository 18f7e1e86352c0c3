"""Engines around a stub target, and a loop that runs requests through them and checks every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import tokenizers
import torch
from tokenizers import decoders, models

from specserve.config.scheduler import SchedulerConfig
from specserve.draft.base import Drafter, NoDraft, bind
from specserve.engine.admission import Admission, Vocabulary
from specserve.engine.draft_length import DraftLength, Loaded
from specserve.engine.engine import Engine
from specserve.engine.native import pick_ops
from specserve.engine.scheduler import Scheduler
from specserve.kv.pages import PageAllocator
from specserve.kv.pool import allocate
from specserve.models.base import CausalLM
from specserve.models.runner import make_runner
from specserve.ops import Ops, reference_ops
from specserve.ops.native import Pool
from specserve.ops.program import Limits
from specserve.sampling.processors import LogitsProcessor
from specserve.text.parts import Parts
from specserve.text.tokenizer import Tokenizer
from specserve.types import DraftStats, LayerCache, Logprobs, Output, Request, SamplingParams, StepStats
from specserve.verify import Verify, load_verifier
from tests.support.stub import StubModel

EOS = 31
ALPHABET = [*"abcdefghijklmnopqrstuvwxyz", "Ġ", ".", "Ã", "©", "!", "</s>"]  # 28, 29: the two bytes of é


def letters() -> Tokenizer:
    """32 ids: a to z, a space, a point, two halves of a character, an exclamation mark, the end token."""
    backend = tokenizers.Tokenizer(models.BPE({piece: i for i, piece in enumerate(ALPHABET)}, []))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([ALPHABET[EOS]])
    return Tokenizer(Parts(backend, {"eos_token": ALPHABET[EOS]}, None), "letters")


def make_engine(
    model: CausalLM,
    drafter: Drafter | None = None,
    *,
    k: int = 4,
    table: Sequence[int] | None = None,
    num_pages: int = 64,
    page_size: int = 4,
    max_model_len: int | None = None,
    max_num_seqs: int = 8,
    budget: int = 64,
    prompt_rows: int | None = None,
    threshold: int = 0,
    policy: str = "fcfs",
    caching: bool = True,
    chunking: bool = True,
    max_waiting: int = 1024,
    tokenizer: Tokenizer | None = None,
    eos: int | None = EOS,
    extra_eos: Iterable[int] = (),
    engine_seed: int = 0,
    max_logprobs: int = -1,
    verify: Verify | None = None,
    ops: Ops | None = None,
    pool: Pool | None = None,
    cache_type: torch.dtype | None = None,
    detailed: bool = False,
    processors: Sequence[LogitsProcessor] = (),
    logprobs_mode: str = "raw_logprobs",
) -> Engine:
    """Small limits by default. Every slot starts as NaN. `table` is k by number of running requests. With a
    `pool` the network, a packed `Decoder`, and the sampling are native; `cache_type` is the type of the
    target's keys and values."""
    drafter = drafter or NoDraft()
    config = SchedulerConfig(
        max_model_len=max_model_len or num_pages * page_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        max_prompt_rows_while_decoding=prompt_rows or budget,
        long_prefill_token_threshold=threshold,
        policy=policy,
        page_size=page_size,
        num_pages=num_pages,
        enable_prefix_caching=caching,
        enable_chunked_prefill=chunking,
        max_waiting=max_waiting,
    )
    shapes = [replace(shape, dtype=cache_type or shape.dtype) for shape in model.layers]
    cache = allocate([*shapes, *drafter.needs.layers], num_pages, page_size, torch.device("cpu"))
    for layer in cache:
        layer.keys.fill_(torch.nan)
        layer.values.fill_(torch.nan)
    limits = Limits(budget, config.max_model_len, page_size)
    _bind(drafter, cache[len(model.layers) :], limits)
    by_batch_size = list(table) if table is not None else [0] + [k] * max_num_seqs
    return Engine(
        make_runner(model, cache, drafter.needs.features, limits, pool),
        drafter,
        verify or load_verifier("standard"),
        ops or (pick_ops(reference_ops(), pool) if pool else reference_ops()),
        Scheduler(config, PageAllocator(num_pages, page_size, drafter.needs.successors), drafter.needs),
        Admission(
            config,
            Vocabulary(model.vocab_size, eos, frozenset(extra_eos)),
            tokenizer,
            engine_seed=engine_seed,
            max_logprobs=max_logprobs,
            loaded=None if isinstance(drafter, NoDraft) else Loaded(("ngram",), max(by_batch_size)),
            processors=tuple(processors),
            detailed_metrics=detailed,
        ),
        DraftLength(by_batch_size, config),
        logprobs_mode=logprobs_mode,
    )


def _bind(drafter: object, cache: list[LayerCache], limits: Limits) -> None:
    """A drafter's own layers, also through whatever is wrapped around it."""
    while hasattr(drafter, "inner") and not hasattr(drafter, "bind"):
        drafter = drafter.inner
    bind(cast(Drafter, drafter), cache, limits)


def request(
    name: str,
    prompt: Sequence[int],
    params: SamplingParams | None = None,
    *,
    arrival: float = 0.0,
    priority: int = 0,
    tenant: str = "",
) -> Request:
    return Request(name, list(prompt), params or greedy(), arrival, priority, tenant)


def greedy(max_tokens: int = 16, **more: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, **more)  # type: ignore[arg-type]


@dataclass
class Result:
    """All outputs of one sequence, added up."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[Logprobs] | None = None
    prompt_logprobs: list[Logprobs | None] | None = None
    outputs: list[Output] = field(default_factory=list)

    def add(self, output: Output) -> None:
        if self.finish_reason is not None:
            raise AssertionError(f"{output.request_id}/{output.index} spoke after its end")
        self.token_ids += output.token_ids
        self.text += output.text
        if output.logprobs is not None:
            self.logprobs = (self.logprobs or []) + output.logprobs
        if output.prompt_logprobs is not None:
            if self.outputs:
                raise AssertionError("prompt logprobs come with the first output only")
            self.prompt_logprobs = output.prompt_logprobs
        self.outputs.append(output)

    @property
    def last(self) -> Output:
        return self.outputs[-1]

    @property
    def finish_reason(self) -> str | None:
        return self.outputs[-1].finish_reason if self.outputs else None

    @property
    def answer(self) -> tuple[object, ...]:
        """All that must not depend on speculation, batch, chunks, cache or preemption."""
        return (
            self.token_ids,
            self.text,
            self.logprobs,
            self.prompt_logprobs,
            self.finish_reason,
            self.last.stop_reason,
        )


@dataclass
class Run:
    """Results by (request id, index), and the statistics of every step."""

    results: dict[tuple[str, int], Result] = field(default_factory=dict)
    steps: list[StepStats] = field(default_factory=list)

    def __getitem__(self, name: str) -> Result:
        return self.results[name, 0]

    @property
    def answers(self) -> dict[tuple[str, int], tuple[object, ...]]:
        return {key: result.answer for key, result in self.results.items()}

    @property
    def drafts(self) -> list[DraftStats]:
        return [draft for step in self.steps for draft in step.drafts]

    def total(self, name: str) -> int:
        return sum(getattr(step, name) for step in self.steps)

    @property
    def num_accepted(self) -> int:
        return sum(draft.accepted for draft in self.drafts)

    @property
    def num_drafted(self) -> int:
        return sum(draft.drafted for draft in self.drafts)


def run(
    engine: Engine,
    requests: Iterable[Request],
    *,
    arrivals: Mapping[str, int] | None = None,
    before_step: Callable[[int], None] | None = None,
    max_steps: int = 20_000,
) -> Run:
    """Add each request before the step named in `arrivals` (default: the first), step until all is done."""
    pending = sorted(requests, key=lambda r: (arrivals or {}).get(r.request_id, 0))
    found = Run()
    for number in range(max_steps):
        while pending and (arrivals or {}).get(pending[0].request_id, 0) <= number:
            engine.add(pending.pop(0))
        if before_step is not None:
            before_step(number)
        if not engine.has_work and not pending:
            check_idle(engine)
            return found
        step(engine, found)
    raise AssertionError(f"not done after {max_steps} steps")


def step(engine: Engine, found: Run | None = None) -> list[Output]:
    """One step, its results added to `found`, the engine's books checked."""
    done = engine.step()
    check_books(engine)
    if found is not None:
        found.steps.append(done.stats)
        for output in done.outputs:
            found.results.setdefault((output.request_id, output.index), Result()).add(output)
    return done.outputs


def plain(model: StubModel, requests: Iterable[Request], **options: object) -> Run:
    """The twin: each request alone, without speculation, prefix cache, chunks or lack of pages."""
    together = Run()
    for one in requests:
        engine = make_engine(model, None, caching=False, budget=4096, **options)  # type: ignore[arg-type]
        together.results |= run(engine, [replace(one, priority=0)]).results
    return together


def check_books(engine: Engine) -> None:
    """Between two steps: every page is free or owned by exactly as many tables as hold it; rows add up."""
    scheduler = engine.scheduler
    owners: dict[int, int] = {}
    for seq in scheduler.running + scheduler.waiting:
        for page in seq.table.pages:
            owners[page] = owners.get(page, 0) + 1
        if seq.is_finished or seq.computed >= len(seq.tokens):
            raise AssertionError(f"{seq.request.request_id} should have ended or computed less")
        if seq.tokens != [*seq.request.prompt_token_ids, *seq.output]:
            raise AssertionError("tokens are not prompt + output")
        if not seq.is_running and (seq.table.pages or seq.computed or seq.draft):
            raise AssertionError("a waiting sequence holds something")
    pages = scheduler.pages
    if pages.num_free + len(owners) != pages.num_pages:
        raise AssertionError(f"{pages.num_pages - pages.num_free - len(owners)} pages leaked")
    if any(pages._owners[page] != count for page, count in owners.items()):
        raise AssertionError("a page's owners are miscounted")


def check_idle(engine: Engine) -> None:
    pages = engine.scheduler.pages
    if pages.num_free != pages.num_pages or engine.has_work or engine._seqs:
        raise AssertionError("an idle engine still holds something")
