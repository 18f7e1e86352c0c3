"""Drafters that draw their guesses, in the engine: q reaches the verdict, and the text keeps its law, or its
bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from specserve.draft.base import Drafter
from specserve.ops import Ops
from specserve.sampling.guess import Method
from specserve.types import Draft, Request, RowRng, SamplingParams, SamplingRows, Verdict
from specserve.verify import load_verifier
from tests.support.drafters import Sampler, short_lists
from tests.support.engine import Run, greedy, letters, make_engine, plain, request, run
from tests.support.law import check_law, joint_counts
from tests.support.ops import fast_ops
from tests.support.stub import StubModel
from tests.support.toys import first_tokens, run_toy, toy_model
from tests.support.traffic import mixed_traffic, sampled

V, HORIZON = 5, 3
OPS = fast_ops()
PAIRS: list[tuple[str, Method]] = [
    ("standard", "probabilistic"),
    ("block", "probabilistic"),
    ("coupled", "coupled"),
]
ASKED: list[tuple[dict[str, Any] | None, int]] = [  # of a drafter with 3 guesses, and the most it may get
    (None, 3),
    ({"enabled": False}, 0),
    ({"num_speculative_tokens": 2}, 2),
    ({"num_speculative_tokens": 0}, 0),
    ({"num_speculative_tokens": 1}, 1),
    ({"enabled": True}, 3),
]


# --- the law ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [None, [3, 1, 0]])
@pytest.mark.parametrize(("rule", "method"), PAIRS)
def test_texts_of_an_engine_have_the_targets_law(rule: str, method: Method, ids: list[int] | None) -> None:
    """Many requests at once, k from 0 to 3 as the row budget and the requests have it."""
    model, law = toy_model()
    drafter = Sampler(model, method, ids=ids)
    asked = [speculation for speculation, _ in ASKED]
    found = run_toy(model, drafter, load_verifier(rule), num_texts=3_000, horizon=HORIZON, asked=asked)
    check_law(joint_counts(first_tokens(found, HORIZON), V), law.joint(HORIZON), 1e-4)
    assert 0.2 * found.num_drafted < found.num_accepted < found.num_drafted


# --- what each request asks for ---------------------------------------------------------------


@pytest.mark.parametrize(("rule", "method"), PAIRS)
@pytest.mark.parametrize("ids", [None, range(20)])
def test_each_request_gets_as_many_drawn_guesses_as_it_asked_for(
    ids: Sequence[int] | None, rule: str, method: Method
) -> None:
    """Side by side in one batch; without guesses a text is plain decoding's, whatever its neighbours draw."""
    model = StubModel()
    requests = [
        request(f"{asked}/{seed}", [5, 2, seed], sampled(24, seed=seed, speculation=asked, ignore_eos=True))
        for seed in range(3)
        for asked, _ in ASKED
    ]
    expected = plain(
        model, [replace(one, params=replace(one.params, speculation=None)) for one in requests], ops=OPS
    )
    engine = make_engine(
        model,
        Sampler(model, method, ids=ids),
        k=3,
        max_num_seqs=12,
        ops=OPS,
        verify=load_verifier(rule),
    )
    found = run(engine, requests)
    for asked, most in ASKED:
        own = [found[f"{asked}/{seed}"] for seed in range(3)]
        specs = [result.last.spec_decode_metrics for result in own]
        lengths = {n for spec in specs if spec for n in spec.acceptance_histogram_by_draft_length}
        assert max(lengths, default=0) == most, asked
        assert len(specs) == 3
        assert {spec.num_spec_tokens for spec in specs if spec} == {most}
        texts = [result.token_ids for result in own]
        right = [expected[f"{asked}/{seed}"].token_ids for seed in range(3)]
        assert (texts == right) == (most == 0 or method == "coupled"), asked


# --- the bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [None, range(20)])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_coupled_guesses_leave_every_answer_as_it_is(k: int, ids: Sequence[int] | None) -> None:
    """The whole mixed traffic: seeded, greedy, in choices, with every parameter, some pages shared."""
    model, requests = StubModel(), mixed_traffic()
    drafter = short_lists(Sampler(model, "coupled", sharpness=0.9, ids=ids))
    found = traffic_run(model, drafter, requests, k=k, verify=load_verifier("coupled"))
    assert found.answers == plain(model, requests, ops=OPS, tokenizer=letters()).answers
    assert found.num_accepted > 0.1 * found.num_drafted > 0


def traffic_run(model: StubModel, drafter: Drafter, requests: list[Request], **options: Any) -> Run:
    engine = make_engine(model, drafter, budget=40, prompt_rows=7, ops=OPS, tokenizer=letters(), **options)
    return run(engine, requests, arrivals={one.request_id: i // 2 for i, one in enumerate(requests)})


# --- q on its way -----------------------------------------------------------------------------


class Watching:
    """A verifier that checks and counts what it is handed, then decides as `standard` does."""

    def __init__(self) -> None:
        self.num_drawn = self.num_deterministic = 0
        self.lengths: list[int] = []

    def __call__(
        self, ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng
    ) -> Verdict:
        for tokens, q, temperature in zip(
            draft.tokens, draft.q or [None] * len(draft.tokens), sampling.temperatures, strict=True
        ):
            self.num_drawn += bool(tokens) and q is not None
            self.num_deterministic += bool(tokens) and q is None
            if q is not None:
                assert temperature > 0.0
                assert len(q.probs) == len(tokens)
                chances = q.probs[range(len(tokens)), tokens]
                assert (chances > 0).all()
                assert torch.allclose(q.probs.sum(1), torch.ones(len(tokens)))
                self.lengths.append(len(tokens))
        return load_verifier("standard")(ops, logits, draft, sampling, rng)


def test_a_draft_that_is_trimmed_keeps_the_q_of_what_is_left() -> None:
    """Greedy and random requests share steps whose rows do not hold all guesses, with pages running out."""
    model, watching = StubModel(), Watching()
    requests = [
        request(
            f"r{i}",
            [i, 5, 2],
            greedy(20, ignore_eos=True) if i % 3 == 0 else sampled(20, seed=i, ignore_eos=True),
        )
        for i in range(9)
    ]
    engine = make_engine(
        model,
        Sampler(model, "probabilistic"),
        k=6,
        budget=30,
        num_pages=24,
        max_model_len=40,
        ops=OPS,
        verify=watching,
    )
    found = run(engine, requests)
    assert watching.num_drawn > 50
    assert watching.num_deterministic > 10
    assert set(watching.lengths) == {1, 2, 3, 4, 5, 6}
    assert found.total("num_trimmed_draft_tokens") > 0
    assert found.total("num_preemptions") > 0


def test_greedy_requests_beside_drawn_ones_keep_their_text() -> None:
    model = StubModel()
    requests = [
        request(f"r{i}", [i, 5, 2], sampled(12, seed=i) if i % 2 else greedy(12, ignore_eos=True))
        for i in range(8)
    ]
    for rule in ("standard", "block"):
        engine = make_engine(model, Sampler(model, "probabilistic"), ops=OPS, verify=load_verifier(rule))
        found = run(engine, requests)
        for one in requests[::2]:
            right = model.continuation(one.prompt_token_ids, 12)
            assert found[one.request_id].token_ids == right


def test_more_is_kept_of_what_is_drawn_than_of_the_best_guess_where_the_target_is_unsure() -> None:
    """What `draft_sample_method` is for: q near p and flat."""
    model, _ = toy_model()
    flat = StubModel(lambda ids, first: model.rule(ids, first) * np.float32(0.3), vocab_size=V)
    kept = {}
    for method, rule in (("greedy", "standard"), ("probabilistic", "standard"), ("coupled", "coupled")):
        drafter = Sampler(flat, method, sharpness=0.8)  # type: ignore[arg-type]
        engine = make_engine(flat, drafter, k=3, max_model_len=64, eos=None, verify=load_verifier(rule))
        params = [SamplingParams(temperature=1.0, max_tokens=40, seed=seed) for seed in range(20)]
        found = run(engine, [request(str(i), [0], one) for i, one in enumerate(params)])
        kept[method] = found.num_accepted / found.num_drafted
    assert kept["probabilistic"] > kept["coupled"] > 1.5 * kept["greedy"]
