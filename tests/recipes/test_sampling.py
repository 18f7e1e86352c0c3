"""Field faults of sampling parameters on verified tokens: each of the 1 + k rows is a row like any other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from specserve.draft.base import Drafter
from specserve.draft.ngram import NgramDrafter, Options
from specserve.ops import Ops, reference_ops
from specserve.types import Ask, Draft, RowRng, SamplingParams, SamplingRows, Verdict
from specserve.verify import Verify, load_verifier
from tests.support.drafters import Guess, Guesser, random_guesses, self_draft
from tests.support.engine import Run, greedy, make_engine, plain, request, run
from tests.support.law import drawn_draft
from tests.support.stub import StubModel, fixed_rule
from tests.support.traffic import sampled
from tests.support.zoo import ZOO, Habitat

MODEL = StubModel()
DRAFTERS = {"self": lambda: self_draft(MODEL), "ngram": lambda: NgramDrafter(Options(1, 3))}


def alone(prompt: list[int], params: SamplingParams, drafter: Drafter | None, **options: object) -> Run:
    return run(make_engine(MODEL, drafter, **options), [request("a", prompt, params)])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", DRAFTERS)
def test_recipe_07_min_p_on_verified_tokens(name: str) -> None:
    params = sampled(200, temperature=1.5, min_p=0.5, seed=7, ignore_eos=True)
    found = alone([1, 2, 3], params, DRAFTERS[name]())
    tokens = found["a"].token_ids
    assert tokens == alone([1, 2, 3], params, None)["a"].token_ids
    assert len(tokens) == 200
    assert found.num_accepted > 0
    text = [1, 2, 3, *tokens]
    for position in range(3, len(text)):
        row = MODEL.row(text[:position]) / np.float32(1.5)
        assert row[text[position]] >= row.max() + np.log(0.5), "less than half the best token's probability"


@pytest.mark.parametrize("name", DRAFTERS)
def test_recipe_08_frequency_penalty_of_both_signs(name: str) -> None:
    prompt = [4, 5, 4, 5, 4]
    texts = []
    for penalty in (-2.0, 2.0):
        params = greedy(24, frequency_penalty=penalty, ignore_eos=True)
        found = alone(prompt, params, DRAFTERS[name]())
        assert found.answers == alone(prompt, params, None).answers
        assert found.num_drafted > 0
        texts.append(found["a"].token_ids)
    assert texts[0] != texts[1]
    assert len(set(texts[0])) < len(set(texts[1])), "one repeats itself, the other does not"


@pytest.mark.parametrize("name", ZOO)
def test_recipe_09_logprobs_are_real(name: str) -> None:
    params = greedy(20, logprobs=3, ignore_eos=True)
    expected = plain(MODEL, [request("a", [1, 2, 3], params)])
    drafter = ZOO[name](Habitat(MODEL, [[1, 2, 3, *expected["a"].token_ids]], page_size=4, k=4))
    found = alone([1, 2, 3], params, drafter)
    assert found.answers == expected.answers
    text = [1, 2, 3, *found["a"].token_ids]
    for position, entry in enumerate(found["a"].logprobs or [], start=3):
        row = MODEL.row(text[:position]).astype(np.float64)
        exact = row - np.log(np.exp(row).sum())
        chosen, *top = entry
        assert chosen == text[position]
        assert [entry[token].logprob for token in entry] == pytest.approx(
            exact[list(entry)].tolist(), abs=1e-5
        )
        assert entry[chosen].rank == 1
        assert {chosen, *top} >= set(np.argsort(-row, kind="stable")[:1].tolist())
        assert len(entry) == 3


def test_recipe_10_prompt_logprobs_under_chunks() -> None:
    lengths = [450, 1700, 600, 512, 1024, 777, 1300, 451]
    params = greedy(1, prompt_logprobs=0)
    requests = [request(str(n), [(n + p * p) % 32 for p in range(n)], params) for n in lengths]
    sizes = {"page_size": 16, "num_pages": 600, "max_model_len": 2048}
    engine = make_engine(MODEL, self_draft(MODEL), budget=256, **sizes)  # type: ignore[arg-type]
    found = run(engine, requests)
    assert found.answers == plain(MODEL, requests, **sizes).answers
    for one in requests:
        entries = found[one.request_id].prompt_logprobs
        assert entries is not None
        assert entries[0] is None
        assert [next(iter(entry)) for entry in entries[1:] if entry] == one.prompt_token_ids[1:]


@pytest.mark.parametrize("name", DRAFTERS)
def test_recipe_11_request_seed(name: str) -> None:
    prompt = [1, 2, 3, 1, 2]
    params = sampled(10, temperature=2.0, seed=42)
    first = alone(prompt, params, DRAFTERS[name]())["a"].token_ids
    assert alone(prompt, params, DRAFTERS[name](), engine_seed=5)["a"].token_ids == first
    batch = [request(f"r{seed}", prompt, sampled(10, temperature=2.0, seed=seed)) for seed in (7, 42, 43, 8)]
    together = run(make_engine(MODEL, DRAFTERS[name]()), batch)
    assert together["r42"].token_ids == first
    assert together["r43"].token_ids != first


def test_recipe_12_no_seed_no_sameness() -> None:
    params = sampled(12, temperature=1.0, seed=None)
    engine = make_engine(MODEL, self_draft(MODEL))
    texts = [tuple(run(engine, [request(str(n), [1, 2], params)])[str(n)].token_ids) for n in range(20)]
    assert len(set(texts)) > 15
    again = make_engine(MODEL)
    assert texts == [
        tuple(run(again, [request(str(n), [1, 2], params)])[str(n)].token_ids) for n in range(20)
    ]


# --- recipe 24: the draw is fair ----------------------------------------------------------------

P = np.array([0.5, 0.3, 0.2])
THREE = StubModel(fixed_rule(np.log(P).tolist()), vocab_size=3)


def one_hot(ask: Ask) -> list[int]:
    return [0] * ask.num_tokens


def drawn_from_q(ask: Ask) -> list[int]:
    """Independent draws from q = (0.2, 0.3, 0.5), handed over as they fell."""
    random = np.random.default_rng([ask.seed % 2**32, len(ask.tokens)])
    drawn: list[int] = random.choice(3, size=ask.num_tokens, p=[0.2, 0.3, 0.5]).tolist()
    return drawn


def frequencies(
    guess: Guess, k: int, num_draws: int, verify: Verify | None = None, **params: float
) -> np.ndarray:
    """How often each token comes among `num_draws` emitted behind drafts."""
    length = 52
    options = {
        "k": k,
        "max_num_seqs": 64,
        "num_pages": 64 * 14,
        "max_model_len": 56,
        "budget": 512,
        "eos": None,
        "max_waiting": 10_000,
    }
    engine = make_engine(THREE, Guesser(guess), verify=verify, **options)  # type: ignore[arg-type]
    one = SamplingParams(**{"temperature": 1.0, "max_tokens": length, **params})  # type: ignore[arg-type]
    found = run(engine, [request(str(n), [n % 3], one) for n in range(-(-num_draws // (length - 2)))])
    assert found.num_accepted > 0
    drawn = [token for result in found.results.values() for token in result.token_ids[1:-1]]
    return np.bincount(drawn, minlength=3)


def chi_square(counts: np.ndarray, law: np.ndarray) -> float:
    expected = law * counts.sum()
    return float((((counts - expected) ** 2)[law > 0] / expected[law > 0]).sum())


LAWS = [
    ({}, P),
    ({"temperature": 0.5}, P**2 / (P**2).sum()),
    ({"top_p": 0.75}, np.array([0.5, 0.3, 0.0]) / 0.8),
    ({"min_p": 0.5}, np.array([0.5, 0.3, 0.0]) / 0.8),
]


@pytest.mark.parametrize(("params", "law"), LAWS)
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("guess", [one_hot, drawn_from_q])
def test_recipe_24_the_draw_is_fair(guess: Guess, k: int, params: dict[str, float], law: np.ndarray) -> None:
    counts = frequencies(guess, k, 3_000, **params)
    assert chi_square(counts, law) < 13.8, "one in a thousand of fair draws is that far off"
    assert ((counts > 0) == (law > 0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("guess", [one_hot, drawn_from_q])
def test_recipe_24_the_draw_is_fair_over_many_draws(guess: Guess, k: int) -> None:
    counts = frequencies(guess, k, 100_000)
    assert chi_square(counts, P) < 13.8
    assert (counts > 0).all()


@pytest.mark.parametrize("k", [1, 3])
def test_recipe_24_the_residual_is_normalised(k: int) -> None:
    """Sampled drafts with their q: the first emitted token, and each after an accepted one, follows p."""
    num, q = 6_000, np.array([0.2, 0.3, 0.5])
    draws = np.random.default_rng(k).choice(3, size=(num, k), p=q).tolist()
    draft = drawn_draft(draws, torch.tensor(q, dtype=torch.float32).expand(num, k, 3))
    logits = torch.tensor(np.log(P), dtype=torch.float32).repeat(num * (k + 1), 1)
    rng = RowRng(list(range(num)), [5] * num)
    verdict = load_verifier("standard")(reference_ops(), logits, draft, SamplingRows([1.0] * num), rng)
    emitted = [
        [*tokens[:kept], last]
        for tokens, kept, last in zip(draws, verdict.accepted, verdict.next_tokens, strict=True)
    ]
    for position in range(k + 1):
        counts = np.bincount([text[position] for text in emitted if len(text) > position], minlength=3)
        assert chi_square(counts, P) < 13.8
    assert abs(np.mean([len(text) > 1 for text in emitted]) - np.minimum(P, q).sum()) < 0.03


def test_recipe_24_a_rule_that_keeps_one_refused_draft_in_four_is_noticed() -> None:
    standard = load_verifier("standard")

    def lenient(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
        verdict = standard(ops, logits, draft, sampling, rng)
        for i, (tokens, accepted) in enumerate(zip(draft.tokens, verdict.accepted, strict=True)):
            if accepted < len(tokens) and rng.indices[i] % 4 == 0:
                verdict.next_tokens[i] = tokens[accepted]
        return verdict

    assert chi_square(frequencies(drawn_from_q, 1, 6_000, lenient), P) > 50


def test_recipe_24_random_guesses_leave_seeded_text_alone() -> None:
    params = sampled(40, temperature=1.0, seed=3, ignore_eos=True)
    assert alone([1, 2], params, random_guesses()).answers == alone([1, 2], params, None).answers
