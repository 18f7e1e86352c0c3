"""Field faults around the cache: prefix hits, preemption, shorter histories, clients that leave."""

from __future__ import annotations

from specserve.draft.ngram import NgramDrafter, Options
from specserve.metrics.prometheus import PrometheusMetrics
from tests.support.drafters import self_draft, short_lists
from tests.support.engine import Run, greedy, make_engine, plain, request, run, step
from tests.support.stub import StubModel
from tests.support.traffic import sampled
from tests.support.witness import Cached, Recording

MODEL = StubModel()
SPEC = "vllm:spec_decode_num_"


def acceptance(found: Run) -> float:
    return found.num_accepted / found.num_drafted


def test_recipe_18_history_gets_shorter() -> None:
    """Preempted and resumed, the drafter is told of shorter computed rows; its index stays right."""
    requests = [request(f"r{n}", [n, 3, 4, 3, 4, 3], greedy(24, ignore_eos=True)) for n in range(4)]
    drafter = Recording(NgramDrafter(Options(1, 3)), 4, MODEL)
    engine = make_engine(MODEL, drafter, num_pages=10, max_model_len=32, caching=False)
    found = run(engine, requests)
    assert drafter.num_restarts > 0
    assert found.num_accepted > 0
    for one in requests:
        assert found[one.request_id].token_ids == MODEL.continuation(one.prompt_token_ids, 24)


def test_recipe_21_second_request_hits_the_prefix_cache() -> None:
    prompt = [(7 * p + p // 9) % 31 for p in range(500)]
    for is_lazy in (False, True):
        drafter = Cached(short_lists(self_draft(MODEL)), MODEL, page_size=16, k=5, is_lazy=is_lazy)
        engine = make_engine(MODEL, drafter, k=5, page_size=16, num_pages=80, budget=128)
        first, second = (run(engine, [request(n, prompt, greedy(60, ignore_eos=True))]) for n in "ab")
        assert first["a"].token_ids == second["b"].token_ids == MODEL.continuation(prompt, 60)
        assert (first["a"].last.num_cached_tokens, second["b"].last.num_cached_tokens) == (0, 496)
        assert second["b"].last.stats is not None
        assert second["b"].last.stats.num_cached_tokens == 496
        assert abs(acceptance(first) - acceptance(second)) < 0.1
        assert drafter.num_rows_shared == 496
        assert drafter.is_empty


def test_recipe_22_preemption_in_mid_speculation() -> None:
    """A cache for two of six requests, greedy and seeded mixed; the twin has room for all."""
    kinds = [greedy(28, ignore_eos=True), sampled(28, seed=5, ignore_eos=True)]
    requests = [request(f"r{n}", [n, *range(12)], kinds[n % 2]) for n in range(6)]
    runs = []
    for num_pages in (22, 200):
        drafter = Recording(self_draft(MODEL), 4, MODEL)
        engine = make_engine(MODEL, drafter, k=5, num_pages=num_pages, max_model_len=44)
        runs.append(run(engine, requests))
        assert drafter.num_proposed == runs[-1].num_drafted + runs[-1].total("num_trimmed_draft_tokens")
    small, large = runs
    assert small.answers == large.answers == plain(MODEL, requests).answers
    assert small.total("num_preemptions") > large.total("num_preemptions") == 0
    for found in runs:
        for stats in found.steps:
            assert min(stats.num_trimmed_draft_tokens, stats.num_running, stats.num_waiting) >= 0
            assert all(0 <= d.accepted <= d.accepted + d.discarded <= d.drafted for d in stats.drafts)
    stats = [result.last.stats for result in small.results.values()]
    assert sum(s.num_preemptions for s in stats if s) == small.total("num_preemptions")


def test_recipe_23_rates_are_rates() -> None:
    """Verified = accepted + rejected + discarded; proposed = verified + trimmed; requests sum to totals."""
    drafter = Recording(short_lists(self_draft(MODEL), seed=2), 4, MODEL)
    engine = make_engine(MODEL, drafter, k=6, num_pages=14, max_model_len=40, budget=16, detailed=True)
    metrics = PrometheusMetrics("stub", num_spec_tokens=6, max_model_len=40)
    kinds = [sampled(20, seed=n, stop_token_ids=[n, n + 9]) if n % 3 else greedy(20) for n in range(12)]
    requests = [request(f"r{n}", [n, 1, 2, 3], params) for n, params in enumerate(kinds)]
    found = run(engine, requests)
    for stats in found.steps:
        metrics.record(stats)

    def counted(name: str) -> float:
        return (
            metrics.registry.get_sample_value(name + "_total", {"model_name": "stub", "engine": "0"}) or 0.0
        )

    per_request = [result.last.spec_decode_metrics for result in found.results.values()]
    assert all(m for m in per_request)
    kept = [m for m in per_request if m]
    assert counted(SPEC + "draft_tokens") == sum(m.num_draft_tokens for m in kept)
    assert counted(SPEC + "accepted_tokens") == sum(m.num_accepted_draft_tokens for m in kept)
    assert counted(SPEC + "drafts") == sum(m.num_spec_steps for m in kept)
    discarded = counted("specserve:spec_decode_num_discarded_tokens")
    assert discarded == sum(m.num_discarded_draft_tokens for m in kept) > 0
    rejected = counted(SPEC + "draft_tokens") - counted(SPEC + "accepted_tokens") - discarded
    assert rejected > 0
    assert drafter.num_proposed == counted(SPEC + "draft_tokens") + found.total("num_trimmed_draft_tokens")
    assert all(0.0 <= m.draft_acceptance_rate <= 1.0 <= m.mean_acceptance_length <= 7.0 for m in kept)


def test_recipe_26_client_goes_away() -> None:
    """Fifty clients leave after five outputs; two slots. Each time the next one starts at once."""
    drafter = Recording(self_draft(MODEL), 4, MODEL)
    engine = make_engine(MODEL, drafter, k=2, max_num_seqs=2, num_pages=40, max_model_len=80)
    engine.add(request("stays", [9, 9, 9], greedy(60, ignore_eos=True)))
    kept = Run()
    for number in range(50):
        name = f"leaves-{number}"
        engine.add(request(name, [number % 31, 1, 2], greedy(50, ignore_eos=True)))
        outputs = step(engine, kept)
        assert name in {output.request_id for output in outputs}, "the slot is free within a step"
        for _ in range(4):
            step(engine, kept)
        engine.abort(name)
        assert name not in {output.request_id for output in step(engine, kept)}
    rest = run(engine, [])
    assert drafter.forgotten == set(range(51))
    text = kept["stays"].token_ids + (rest["stays"].token_ids if ("stays", 0) in rest.results else [])
    assert text == MODEL.continuation([9, 9, 9], 60)
