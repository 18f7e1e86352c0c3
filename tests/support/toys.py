"""Engines around a toy target: many short texts, whose exact law is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from specserve.draft.base import Drafter
from specserve.types import SamplingParams
from specserve.verify import Verify
from tests.support.engine import Run, make_engine, request, run
from tests.support.law import Text, Toy
from tests.support.ops import fast_ops
from tests.support.stub import Floats, Ids, StubModel


def toy_model(vocab_size: int = 5, seed: int = 0) -> tuple[StubModel, Toy]:
    """A target whose logits depend on the last token, and its exact law after the token 0."""
    rows = torch.randn(vocab_size, vocab_size, generator=torch.Generator().manual_seed(seed)) * 1.5

    def rule(ids: Ids, first: int) -> Floats:
        return rows[torch.from_numpy(ids[first:])].numpy().copy()

    return StubModel(rule, vocab_size=vocab_size), Toy(torch.cat([rows, rows[:1]]))


def run_toy(
    model: StubModel,
    drafter: Drafter,
    verify: Verify,
    *,
    num_texts: int,
    horizon: int,
    asked: Sequence[Mapping[str, Any] | None] = (None,),
) -> Run:
    """Texts after the token 0, named by their seeds 0, 1, …, a little longer than the horizon.

    Many at once, k from 0 to 3 as the row budget has it, and as the texts ask for in turn.
    """
    engine = make_engine(
        model,
        drafter,
        k=3,
        num_pages=512,
        max_model_len=16,
        max_num_seqs=64,
        max_waiting=num_texts,
        budget=150,
        eos=None,
        ops=fast_ops(),
        verify=verify,
    )
    params = [
        SamplingParams(
            temperature=1.0, max_tokens=horizon + 2, seed=seed, speculation=asked[seed % len(asked)]
        )
        for seed in range(num_texts)
    ]
    return run(engine, [request(str(seed), [0], one) for seed, one in enumerate(params)])


def first_tokens(found: Run, horizon: int) -> list[Text]:
    return [tuple(result.token_ids[:horizon]) for result in found.results.values()]
