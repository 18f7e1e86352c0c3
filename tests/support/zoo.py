"""One of each: the drafters every exactness test goes through, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specserve.draft import draft_model as draft_models
from specserve.draft import suffix
from specserve.draft.base import Drafter
from specserve.draft.chain import ChainDrafter, Member
from specserve.draft.ngram import NgramDrafter, Options
from specserve.draft.prediction import PredictionDrafter
from specserve.ops import reference_ops
from tests.support import drafters
from tests.support.drafters import Known
from tests.support.engine import EOS
from tests.support.stub import Rule, StubModel, hash_rule
from tests.support.witness import Cached


@dataclass(frozen=True)
class Habitat:
    """What a drafter may be built from; `texts` are the whole texts plain decoding gives."""

    model: StubModel
    texts: Sequence[Sequence[int]]
    page_size: int
    k: int


def predicting(habitat: Habitat, inner: Drafter) -> Drafter:
    return drafters.Predicting(inner, habitat.texts, habitat.model.vocab_size)


def chain_of_lookups(h: Habitat) -> Drafter:
    members = [
        Member("prediction", PredictionDrafter(), h.k),
        Member("ngram", NgramDrafter(Options(1, 3)), 3),
    ]
    members += [Member("half", drafters.half_right(Known(h.texts, h.model.vocab_size)), 2)]
    return predicting(h, ChainDrafter(members))


def chain_of_all_kinds(h: Habitat) -> Drafter:
    """Lookups, drawn guesses, and two that keep rows of their own, one of them late."""
    late = Cached(drafters.self_draft(h.model), h.model, h.page_size, h.k, is_lazy=True)
    prompt = Cached(drafters.random_guesses(), h.model, h.page_size, h.k)
    coupled = drafters.Sampler(h.model, "coupled", ids=range(0, h.model.vocab_size, 2))
    members = [Member("ngram", NgramDrafter(Options(1, 3)), h.k), Member("coupled", coupled, 3)]
    return ChainDrafter([*members, Member("prompt", prompt, h.k), Member("late", late, 4)])


def draft_model(h: Habitat, rule: Rule | None = None, **options: Any) -> Drafter:
    """The target's twin, or one of another rule."""
    chosen = draft_models.Options("stub", h.k, **options)
    model = StubModel(rule or h.model.rule, h.model.vocab_size)
    return draft_models.DraftModelDrafter(model, chosen, reference_ops(), None, torch.float32)


ZOO: dict[str, Callable[[Habitat], Drafter]] = {
    "ngram": lambda _: NgramDrafter(Options(1, 3)),
    "ngram-earliest": lambda _: NgramDrafter(Options(2, 4, "earliest")),
    "suffix": lambda _: suffix.build(suffix.Options(12, 4), None),
    "random": lambda h: drafters.random_guesses(h.model.vocab_size),
    "always-wrong": lambda h: drafters.always_wrong(h.texts, h.model.vocab_size),
    "always-right": lambda h: drafters.always_right(h.texts),
    "self": lambda h: drafters.self_draft(h.model),
    "out-of-vocabulary": lambda h: drafters.out_of_vocabulary(h.model),
    "end-inside": lambda h: drafters.end_token_inside(h.model, EOS),
    "short-lists": lambda h: drafters.short_lists(drafters.self_draft(h.model)),
    "coupled": lambda h: drafters.Sampler(h.model, "coupled"),
    "coupled-part": lambda h: drafters.Sampler(h.model, "coupled", ids=range(0, h.model.vocab_size, 2)),
    "draft-model": lambda h: draft_model(h, hash_rule(h.model.vocab_size, surprise=3)),
    "draft-model-twin": draft_model,
    "draft-model-short": lambda h: draft_model(h, max_model_len=22),
    "draft-model-coupled": lambda h: draft_model(h, draft_sample_method="coupled"),
    "prediction": lambda h: predicting(h, PredictionDrafter()),
    "chain-lookups": chain_of_lookups,
    "chain-all": chain_of_all_kinds,
    "cached": lambda h: Cached(drafters.self_draft(h.model), h.model, h.page_size, h.k),
    "cached-lazy": lambda h: Cached(
        drafters.short_lists(drafters.self_draft(h.model)), h.model, h.page_size, h.k, is_lazy=True
    ),
}
