"""How much each rule keeps, from its configuration through the engine: block against token by token, `fly`
where it may defer nothing, `synthetic` at the length it was told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specserve.draft.base import Drafter
from specserve.draft.config import TargetInfo, resolve_speculative
from specserve.types import SpecDecodeMetrics
from specserve.verify import Verify, load_verifier
from tests.support.drafters import Guesser, Sampler, random_guesses, self_draft
from tests.support.engine import Run, letters, make_engine, request, run
from tests.support.ops import fast_ops
from tests.support.stub import Floats, Ids, StubModel, fixed_rule
from tests.support.traffic import mixed_traffic, sampled

K, V = 4, 32
OPS = fast_ops()
MODEL = StubModel()


def configured(rule: str, **keys: Any) -> Verify:
    """As `speculative_config` chooses it."""
    target = TargetInfo(model="stub", vocab_size=V, max_model_len=256, num_layers=1, hidden_size=V)
    raw = {"method": "ngram", "num_speculative_tokens": K, "rejection_sample_method": rule, **keys}
    return load_verifier(rule, resolve_speculative(raw, target, max_num_seqs=8))


def seeded_run(
    model: StubModel, drafter: Drafter, verify: Verify, num_requests: int, max_tokens: int
) -> list[SpecDecodeMetrics]:
    """One seed per request, pages and rows for everybody: every draft but the last ones has K guesses."""
    engine = make_engine(
        model,
        drafter,
        k=K,
        num_pages=1024,
        max_model_len=200,
        max_num_seqs=64,
        max_waiting=num_requests,
        budget=1024,
        eos=None,
        ops=OPS,
        verify=verify,
        detailed=True,
    )
    params = [sampled(max_tokens, seed=seed, ignore_eos=True) for seed in range(num_requests)]
    found = run(engine, [request(str(i), [i % V], one) for i, one in enumerate(params)])
    metrics = [found[str(i)].last.spec_decode_metrics for i in range(num_requests)]
    return [one for one in metrics if one is not None]


# --- block --------------------------------------------------------------------------------------


def test_block_keeps_at_least_as_much_as_standard() -> None:
    """The first draft of a request is the same under both rules: its text, its seed and its guesses are. On
    average the block keeps more of it, and of all drafts of the texts; printed (pytest -s)."""
    rows = np.random.default_rng(0).normal(size=(V, V)).astype(np.float32) * 3

    def rule(ids: Ids, first: int) -> Floats:
        return rows[ids[first:]]

    model = StubModel(rule)
    found = {
        name: seeded_run(model, Sampler(model, "probabilistic", sharpness=0.3), configured(name), 400, 16)
        for name in ("block", "standard")
    }
    first = {name: np.array([one.per_step_accepted[0] for one in all_]) for name, all_ in found.items()}
    gains = first["block"] - first["standard"]
    error = gains.std() / np.sqrt(len(gains))
    whole = {
        name: float(np.mean([one.mean_acceptance_length for one in all_])) for name, all_ in found.items()
    }
    print(
        f"\nfirst drafts: block {first['block'].mean():.3f} standard {first['standard'].mean():.3f} "
        f"gain {gains.mean():+.3f} ± {error:.3f}; whole texts, tokens per step: block {whole['block']:.3f} "
        f"standard {whole['standard']:.3f}"
    )
    assert all(one.per_step_drafted[0] == K for all_ in found.values() for one in all_)
    assert gains.mean() > 3 * error
    assert whole["block"] > whole["standard"]


# --- fly ----------------------------------------------------------------------------------------


def traffic_run(drafter: Drafter, verify: Verify) -> Run:
    engine = make_engine(MODEL, drafter, k=K, budget=40, ops=OPS, tokenizer=letters(), verify=verify)
    return run(engine, mixed_traffic())


@pytest.mark.parametrize("drafter", [self_draft(MODEL), random_guesses(), Sampler(MODEL, "probabilistic")])
def test_fly_with_an_endless_threshold_is_standard(drafter: Drafter) -> None:
    """Answers and counts, for guesses that are best, wild and drawn; with a low threshold it is not."""
    standard = traffic_run(drafter, configured("standard"))
    endless = traffic_run(drafter, configured("fly", fly_entropy_threshold=float("inf")))
    assert endless.answers == standard.answers
    assert endless.drafts == standard.drafts
    assert standard.num_drafted > 0


def test_fly_with_a_low_threshold_is_not() -> None:
    drafter = Sampler(MODEL, "probabilistic")
    loose = traffic_run(drafter, configured("fly", fly_entropy_threshold=0.0, fly_window_size=1))
    standard = traffic_run(drafter, configured("standard"))
    assert loose.answers != standard.answers
    assert loose.num_accepted / loose.num_drafted > standard.num_accepted / standard.num_drafted


# --- synthetic ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "is_drawn"), [(1.75, False), (3.4, False), (5.0, False), (3.4, True)])
def test_synthetic_hits_its_mean_length_within_one_percent(length: float, is_drawn: bool) -> None:
    """Over drafts of K guesses: those of a text's end are shorter, and so is what is kept of them."""
    model = StubModel(fixed_rule(np.linspace(0, 2, V).tolist()))
    guesser = Guesser(lambda ask: [1 + len(ask.tokens) % 5] * ask.num_tokens)
    drafter = Sampler(model, "probabilistic") if is_drawn else guesser
    verify = configured("synthetic", synthetic_acceptance_length=length)
    counts = np.zeros(K + 1)
    for metrics in seeded_run(model, drafter, verify, 64, 120):
        counts += metrics.acceptance_histogram_by_draft_length[K]
    mean = 1 + counts @ np.arange(K + 1) / counts.sum()
    assert counts.sum() > 1_000
    assert abs(mean - length) <= 0.01 * length
