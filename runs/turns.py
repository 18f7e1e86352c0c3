"""Drafters without weights that take turns in one engine, for the experiments beside it.

An engine is loaded once; before each request its drafter is replaced, and the request says how many guesses
it wants. So all of them run on the same weights in the same memory, one right after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from specserve.bench.fidelity import parse_variant
from specserve.config.engine import EngineConfig, engine_config
from specserve.draft import load_drafter
from specserve.draft.base import Drafter, NoDraft
from specserve.draft.config import resolve_speculative
from specserve.engine.build import Deployment, build
from specserve.engine.choose import choose
from specserve.types import Commit, CommitBatch, Needs, Request, SamplingParams

NONE = "none"
MOST = 64  # guesses per step


@dataclass(frozen=True, slots=True)
class Contestant:
    """A drafter and its most guesses per step."""

    drafter: Drafter
    k: int


@dataclass(slots=True)
class Answer:
    """Of each step after the prompt's its rows, its milliseconds, and of these drafting."""

    ids: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    draft_ms: list[float] = field(default_factory=list)


def load(model: str, weight_class: str, num_threads: int | None) -> Deployment:
    limits = {"max_model_len": 4096, "max_num_seqs": 1, "seed": 0, "num_threads": num_threads}
    speculation = {"speculative_config": {"method": "ngram", "num_speculative_tokens": MOST}}
    options = {"model": model, **limits, **speculation, **parse_variant(weight_class).options}
    return build(engine_config(options), is_offline=True)


def contestants(config: EngineConfig, drafters: Mapping[str, Mapping[str, Any]]) -> dict[str, Contestant]:
    """By name, "none" first."""
    target = choose(config, is_offline=True).target
    found = {NONE: Contestant(NoDraft(), 0)}
    for name, raw in drafters.items():
        speculative = resolve_speculative(raw, target, max_num_seqs=1)
        assert speculative is not None
        found[name] = Contestant(load_drafter(speculative, target), speculative.num_speculative_tokens)
        if found[name].drafter.needs != Needs():
            raise SystemExit(f"{name}: only drafters without weights can take turns in one engine.")
    return found


def answer(deployment: Deployment, one: Contestant, prompt: Sequence[int], num_tokens: int) -> Answer:
    """Greedily and alone."""
    engine, found = deployment.engine, Answer()
    engine.drafter = one.drafter
    speculation = {"num_speculative_tokens": one.k}
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, detokenize=False, speculation=speculation)
    engine.add(Request("turn", list(prompt), params, monotonic()))
    while engine.has_work:
        is_prompt = not found.ids
        done = engine.step()
        for output in done.outputs:
            found.ids += output.token_ids
        if not is_prompt:
            found.rows.append(done.stats.num_rows)
            found.ms.append(round(1e3 * done.stats.step_seconds, 3))
            found.draft_ms.append(round(1e3 * done.stats.draft_seconds, 3))
    return found


def answer_all(
    deployment: Deployment,
    everyone: Mapping[str, Contestant],
    prompt: Sequence[int],
    num_tokens: int,
    turn: int,
) -> dict[str, Answer]:
    """One right after the other, another one first each `turn`. Raises SystemExit when texts differ."""
    first = turn % len(everyone)
    order = [*everyone][first:] + [*everyone][:first]
    answers = {name: answer(deployment, everyone[name], prompt, num_tokens) for name in order}
    if any(found.ids != answers[NONE].ids for found in answers.values()):
        raise SystemExit(f"turn {turn}: the text depends on the drafter")
    return {name: answers[name] for name in everyone}


def remember(one: Contestant, ids: Sequence[int]) -> None:
    """An answer that was given before, for a drafter that learns from answers."""
    tokens = [0, *ids]
    one.drafter.observe(CommitBatch([Commit(-1, 0, len(tokens) - 1, 0, tokens, num_prompt=1)]))
    one.drafter.forget([-1])
