"""Speculation changes no answer: ids, text, logprobs and reasons equal plain decoding's, bit for bit.

Every pair of values of two options meets in some cell. The twin answers each request alone, without
speculation, shared pages, chunks or preemption.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from specserve.types import Request
from tests.support.engine import Run, letters, make_engine, plain, run
from tests.support.stub import StubModel
from tests.support.traffic import all_pairs, mixed_traffic
from tests.support.witness import Cached, Recording
from tests.support.zoo import ZOO, Habitat

MAX_LEN = 48
MODEL = StubModel()
TOKENIZER = letters()

OPTIONS: dict[str, list[Any]] = {
    "drafter": list(ZOO),
    "k": [1, 4, 8, "table"],
    "budget": [1, 6, 20, 64],
    "page_size": [1, 4, 7, 16],
    "pages": [1.0, 1.3, 2.0, 20.0],  # times the longest sequence
    "caching": [True, False],
    "policy": ["fcfs", "priority"],
    "prompt_rows": [1, 3, None],
    "max_num_seqs": [3, 8],
    "threshold": [0, 5],
    "chunking": [True, True, False],
}
TABLE = [0, 8, 5, 0, 3, 1, 2, 0, 4]  # k by number of running requests
CELLS = [{**row, "order": seed} for seed in (0, 4) for row in all_pairs(OPTIONS, seed)]


@cache
def expected() -> Run:
    return plain(MODEL, mixed_traffic(), tokenizer=TOKENIZER, num_pages=MAX_LEN, page_size=1)


def texts() -> list[list[int]]:
    prompts = {request.request_id: request.prompt_token_ids for request in mixed_traffic()}
    return [[*prompts[name], *result.token_ids] for (name, _), result in expected().results.items()]


def shuffled(cell: dict[str, Any]) -> tuple[list[Request], dict[str, int]]:
    """The traffic in another order, spread over the first steps."""
    random = Random(cell["order"])
    requests = mixed_traffic()
    random.shuffle(requests)
    if cell["policy"] == "priority":
        requests = [replace(request, priority=random.randint(-1, 1)) for request in requests]
    return requests, {request.request_id: random.randint(0, 30) for request in requests}


def run_cell(cell: dict[str, Any]) -> tuple[Run, Recording]:
    size = cell["page_size"]
    k = max(TABLE) if cell["k"] == "table" else cell["k"]
    drafter = Recording(ZOO[cell["drafter"]](Habitat(MODEL, texts(), size, k)), size, MODEL)
    slots = drafter.needs.draft_slots
    engine = make_engine(
        MODEL,
        drafter,
        table=TABLE if cell["k"] == "table" else [0] + [k] * 8,
        num_pages=round(-(-MAX_LEN // size) * cell["pages"]),
        page_size=size,
        max_model_len=MAX_LEN,
        max_num_seqs=cell["max_num_seqs"],
        budget=max(cell["budget"], 1 + slots) if cell["chunking"] else MAX_LEN + slots,
        prompt_rows=cell["prompt_rows"] if cell["chunking"] else None,
        threshold=cell["threshold"],
        chunking=cell["chunking"],
        policy=cell["policy"],
        caching=cell["caching"],
        tokenizer=TOKENIZER,
    )
    requests, arrivals = shuffled(cell)
    found = run(engine, requests, arrivals=arrivals)
    assert found.answers == expected().answers, cell
    return found, drafter


def check_cell(found: Run, drafter: Recording) -> None:
    """The books of a whole run."""
    assert drafter.forgotten >= set(drafter.stories)
    assert drafter.num_restarts <= found.total("num_preemptions")
    assert all(d.drafted >= d.accepted + d.discarded for d in found.drafts)
    assert drafter.num_proposed == found.num_drafted + found.total("num_trimmed_draft_tokens")
    emitted = sum(len(result.token_ids) for result in found.results.values())
    assert found.total("num_generation_tokens") == emitted
    if isinstance(drafter.inner, Cached):
        assert drafter.inner.is_empty


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 15))
def test_other_covers_of_the_options_agree_as_well(seed: int) -> None:
    for row in all_pairs(OPTIONS, seed):
        check_cell(*run_cell({**row, "order": seed}))


@pytest.mark.parametrize("name", ZOO)
def test_any_drafter_gives_plain_answers_in_all_circumstances(name: str) -> None:
    runs = []
    for cell in CELLS:
        if cell["drafter"] == name:
            found, drafter = run_cell(cell)
            check_cell(found, drafter)
            runs.append(found)
    assert sum(found.total("num_preemptions") for found in runs) > 5
    assert sum(found.total("prefix_hits") for found in runs) > 100
    drafted = sum(found.num_drafted for found in runs)
    accepted = sum(found.num_accepted for found in runs)
    assert drafted > 100
    if name == "always-wrong":
        assert accepted == 0
    elif name == "always-right":
        assert accepted > 0.9 * drafted
    else:
        assert accepted > 20


def test_the_twin_is_the_rule_itself() -> None:
    """Plain greedy decoding through the engine equals the model's definition, without any cache."""
    for request in mixed_traffic():
        if request.request_id in ("greedy", "judged"):
            ids = expected()[request.request_id].token_ids
            assert ids == MODEL.continuation(request.prompt_token_ids, len(ids))


def test_the_traffic_covers_what_it_claims() -> None:
    results = expected().results
    assert {result.finish_reason for result in results.values()} == {"stop", "length"}
    assert {type(result.last.stop_reason) for result in results.values()} >= {str, type(None)}
    assert len(expected()["patient"].token_ids) > 9
    assert len({tuple(results["choices", i].token_ids) for i in range(3)}) == 3
    assert expected()["greedy"].token_ids != expected()["sampled"].token_ids
    assert expected()["judged"].prompt_logprobs is not None
