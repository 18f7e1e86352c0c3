"""Field faults at a text's end: stops, end tokens and limits that fall inside a block of accepted drafts."""

from __future__ import annotations

import pytest

from specserve.draft.base import Drafter
from specserve.draft.ngram import NgramDrafter, Options
from specserve.metrics.stats import EngineStats
from specserve.types import Request, SamplingParams
from tests.support.drafters import Scripted, end_token_inside, self_draft
from tests.support.engine import EOS, Run, greedy, letters, make_engine, plain, request, run
from tests.support.stub import StubModel, fixed_rule, script_rule
from tests.support.zoo import ZOO, Habitat

TOKENIZER = letters()
SENTENCE = [7, 0, 26, 11, 0, 26]  # "ha la "
REPEATING = [25, *SENTENCE * 20]


def ngram(low: int = 1, high: int = 3) -> Drafter:
    return NgramDrafter(Options(low, high))


def twins(model: StubModel, drafter: Drafter, one: Request, k: int, **options: object) -> tuple[Run, Run]:
    """The same request with speculation and without."""
    engine = make_engine(model, drafter, k=k, tokenizer=TOKENIZER, **options)  # type: ignore[arg-type]
    return run(engine, [one]), plain(model, [one], tokenizer=TOKENIZER, num_pages=256)


def streamed(found: Run) -> tuple[list[int], str, int]:
    """Ids, text and number of logprob entries as a client that reads the stream adds them up."""
    outputs = found["a"].outputs
    ids = [token for output in outputs for token in output.token_ids]
    return ids, "".join(o.text for o in outputs), sum(len(o.logprobs or []) for o in outputs)


@pytest.mark.parametrize("stop", ["la ", "a l", " l", "a "])
@pytest.mark.parametrize("num_prompt", range(1, 8))
def test_recipe_02_stop_early_in_a_long_block(stop: str, num_prompt: int) -> None:
    model = StubModel(script_rule([REPEATING]))
    one = request("a", REPEATING[:num_prompt], greedy(100, stop=stop, ignore_eos=True))
    found, expected = twins(model, self_draft(model), one, k=16)
    assert found.answers == expected.answers
    assert (found["a"].finish_reason, found["a"].last.stop_reason) == ("stop", stop)
    assert len(found["a"].token_ids) <= len(SENTENCE) + 3, "the first occurrence"
    assert stop not in found["a"].text
    assert found.num_drafted >= 16


@pytest.mark.parametrize("include", [False, True])
def test_recipe_03_ids_and_logprobs_cut_with_the_text(include: bool) -> None:
    laugh = [7, 0, 26] * 20  # "ha ha ha "
    model = StubModel(script_rule([[25, 24, 23, *laugh]]))
    params = greedy(60, stop=" ha ha ha", logprobs=2, ignore_eos=True, include_stop_str_in_output=include)
    found, expected = twins(model, ngram(2, 5), request("a", [25, 24, 23, *laugh[:4]], params), k=4)
    assert found.answers == expected.answers
    result = found["a"]
    assert result.text == ("a ha ha ha" if include else "a")
    assert streamed(found) == (result.token_ids, result.text, len(result.token_ids))
    stats = result.last.stats
    assert stats is not None
    assert stats.num_generation_tokens == len(result.token_ids) == 10
    assert all(
        next(iter(entry)) == token
        for entry, token in zip(result.logprobs or [], result.token_ids, strict=True)
    )
    assert any(draft.discarded for draft in found.drafts), "the stop fell inside a block"


@pytest.mark.parametrize("position", range(12))
@pytest.mark.parametrize("k", [3, 5, 16])
def test_recipe_04_end_token_in_mid_block(position: int, k: int) -> None:
    model = StubModel(script_rule([list(range(31)) * 2]))
    prompt = [0, 1, 2]
    token = plain(model, [request("a", prompt, greedy(20))])["a"].token_ids[position]
    one = request("a", prompt, greedy(20, stop_token_ids=[token]))
    found, expected = twins(model, self_draft(model), one, k=k)
    assert found.answers == expected.answers
    assert (len(found["a"].token_ids), found["a"].last.stop_reason) == (position + 1, token)
    assert streamed(found)[0] == list(range(3, 4 + position))


@pytest.mark.parametrize("max_tokens", range(1, 65))
def test_recipe_05_exact_token_budget(max_tokens: int) -> None:
    model = StubModel()
    engine = make_engine(model, self_draft(model), k=4)
    found = run(engine, [request("a", [1, 2, 3], greedy(max_tokens, ignore_eos=True))])
    result = found["a"]
    stats, metrics = result.last.stats, result.last.spec_decode_metrics
    assert stats is not None
    assert metrics is not None
    assert len(result.token_ids) == stats.num_generation_tokens == max_tokens
    assert found.total("num_generation_tokens") == max_tokens
    assert result.token_ids == model.continuation([1, 2, 3], max_tokens)
    assert 1 + len(found.steps[1:]) + metrics.num_accepted_draft_tokens == max_tokens


@pytest.mark.parametrize("min_tokens", [0, 3, 4, 19, 20, 21])
def test_recipe_06_min_tokens_counts_tokens(min_tokens: int) -> None:
    """The answer has three tokens, then the end; everything after a masked end token is text of its own."""
    values = [1.0 / (1 + token) for token in range(31)]
    model = StubModel(fixed_rule([*values, 3.0], by_last={0: [*values, 3.0]}))
    one = request("a", [1, 2], greedy(40, min_tokens=min_tokens))
    for drafter in (self_draft(model), ngram(1, 2), Scripted([[0] * 8] * 40), Scripted([[EOS, 0, EOS]] * 40)):
        found, expected = twins(model, drafter, one, k=8)
        assert found.answers == expected.answers
        assert found["a"].token_ids == [0] * min_tokens + [EOS]
        assert found["a"].finish_reason == "stop"


@pytest.mark.parametrize("name", ZOO)
def test_recipe_19_at_the_context_limit(name: str) -> None:
    model = StubModel()
    prompt = [1, 2, 3] * 30
    text = [*prompt, *model.continuation(prompt, 10)]
    endless = SamplingParams(temperature=0.0, max_tokens=None, ignore_eos=True)
    options = {"k": 16, "max_model_len": 100, "num_pages": 300, "budget": 512, "max_num_seqs": 10}
    for count in (1, 10):
        drafter = ZOO[name](Habitat(model, [text], page_size=4, k=16))
        engine = make_engine(model, drafter, **options)  # type: ignore[arg-type]
        found = run(engine, [request(f"r{n}", prompt, endless) for n in range(count)])
        assert len(found.results) == count
        for result in found.results.values():
            assert (result.token_ids, result.finish_reason) == (text[90:], "length")
        assert all(draft.drafted <= 8 for draft in found.drafts), "no draft beyond the limit"


def test_recipe_25_the_first_draft_is_verified_too() -> None:
    model = StubModel(script_rule([[1, 1, 1, 7, 7, 1]]))
    found = run(make_engine(model, ngram(1, 2), k=1), [request("a", [1, 1], greedy(2, ignore_eos=True))])
    assert found["a"].token_ids == [1, 7]
    found = run(make_engine(model, ngram(1, 2), k=3), [request("a", [1, 1], greedy(4, ignore_eos=True))])
    assert found["a"].token_ids == [1, 7, 7, 1]
    assert (found.drafts[0].drafted, found.drafts[0].accepted) == (1, 0), "1 was proposed and refused"


def test_counts_of_every_ending_agree_with_the_servers() -> None:
    """Per-request sums, step sums and server totals are the same numbers (recipes 5 and 23)."""
    model = StubModel()
    engine = make_engine(model, end_token_inside(model, EOS), tokenizer=TOKENIZER)
    ends = [{}, {"stop": "a"}, {"stop_token_ids": [3, 5]}, {"min_tokens": 7}, {"ignore_eos": True}]
    found = run(engine, [request(f"r{n}", [n, 1, 2], greedy(25, **more)) for n, more in enumerate(ends * 2)])
    totals = EngineStats(num_spec_tokens=4)
    for stats in found.steps:
        totals.add(stats)
    spec = totals.speculation
    metrics = [result.last.spec_decode_metrics for result in found.results.values()]
    assert spec.num_draft_tokens == sum(m.num_draft_tokens for m in metrics if m)
    assert spec.num_accepted_tokens == sum(m.num_accepted_draft_tokens for m in metrics if m)
    assert spec.num_discarded_tokens == sum(m.num_discarded_draft_tokens for m in metrics if m) > 0
    assert spec.num_rejected_tokens > 0
    assert spec.num_draft_tokens == (
        spec.num_accepted_tokens + spec.num_rejected_tokens + spec.num_discarded_tokens
    )
