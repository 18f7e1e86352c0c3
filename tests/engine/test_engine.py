"""One engine on one thread: what comes out of a step, and what an abort or a failure leaves behind."""

from __future__ import annotations

import pytest

from specserve.draft.base import NoDraft
from specserve.draft.ngram import NgramDrafter, Options
from specserve.engine.engine import Engine
from specserve.errors import InvalidRequest, Overloaded
from specserve.types import DraftStats
from tests.support.drafters import Scripted, always_right, self_draft
from tests.support.engine import EOS, greedy, letters, make_engine, plain, request, run, step
from tests.support.stub import StubModel, script_rule
from tests.support.traffic import sampled
from tests.support.witness import Recording

MODEL = StubModel()


def recorded(**options: object) -> tuple[Engine, Recording]:
    drafter = Recording(self_draft(MODEL), 4, MODEL)
    return make_engine(MODEL, drafter, **options), drafter  # type: ignore[arg-type]


# --- outputs ----------------------------------------------------------------------------------


def test_a_step_emits_all_it_made_true() -> None:
    model = StubModel(script_rule([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]]))
    engine = make_engine(model, Scripted([[4, 5, 0], [7, 8]]), tokenizer=letters())
    engine.add(request("a", [1, 2], greedy(9)))
    outputs = [step(engine)[0] for _ in range(3)]
    assert [output.token_ids for output in outputs] == [[3], [4, 5, 6], [7, 8, 9]]
    assert [output.text for output in outputs] == ["d", "efg", "hij"]
    assert all(output.finish_reason is None for output in outputs)
    assert all(output.stats is output.spec_decode_metrics is None for output in outputs)


def test_the_last_output_carries_reason_counts_and_times() -> None:
    engine, _ = recorded()
    found = run(engine, [request("a", [1, 2, 3, 4, 5], greedy(10, ignore_eos=True), arrival=1.0)])
    last = found["a"].last
    assert (last.finish_reason, last.stop_reason) == ("length", None)
    assert last.stats is not None
    assert (last.stats.num_prompt_tokens, last.stats.num_generation_tokens) == (5, 10)
    assert (last.stats.arrival, last.stats.max_tokens, last.stats.n) == (1.0, 10, 1)
    assert last.stats.arrival <= last.stats.first_scheduled <= last.stats.first_token <= last.stats.last_token
    assert last.spec_decode_metrics is not None
    assert last.spec_decode_metrics.num_spec_tokens == 4
    assert found.steps[-1].finished == [last.stats]


def test_metrics_of_requests_add_up_to_those_of_steps() -> None:
    engine, _ = recorded(detailed=True)
    requests = [request(name, [ord(name) % 31, 5], sampled(20, seed=n)) for n, name in enumerate("abcdef")]
    found = run(engine, requests)
    metrics = [result.last.spec_decode_metrics for result in found.results.values()]
    assert sum(m.num_accepted_draft_tokens for m in metrics if m) == found.num_accepted > 0
    assert sum(m.num_draft_tokens for m in metrics if m) == found.num_drafted
    assert sum(m.num_spec_steps for m in metrics if m) == len(found.drafts)
    assert sum(m.num_discarded_draft_tokens for m in metrics if m) == sum(d.discarded for d in found.drafts)
    for m in metrics:
        assert m is not None
        assert sum(m.per_step_drafted) == m.num_draft_tokens
        assert sum(m.per_step_accepted) == m.num_accepted_draft_tokens + m.num_discarded_draft_tokens


def test_emitted_tokens_per_step_exclude_the_prompts_own() -> None:
    engine, _ = recorded()
    found = run(engine, [request("a", [1, 2, 3], greedy(11, ignore_eos=True))])
    assert found.total("num_generation_tokens") == 11
    assert found.total("num_emitted") == 10
    assert found.total("num_emitting") == len(found.steps) - 1
    assert (found.total("num_prompt_tokens"), found.total("num_prompt_tokens_cached")) == (3, 0)
    again = run(engine, [request("b", [1, 2, 3, 4, 5, 6], greedy(1))])
    assert again.total("num_emitting") == 0


def test_without_work_a_step_does_nothing() -> None:
    engine, _ = recorded()
    assert not engine.has_work
    done = engine.step()
    assert (done.outputs, done.stats.num_rows, done.stats.num_running) == ([], 0, 0)


def test_no_drafts_no_draft_stats() -> None:
    found = run(make_engine(MODEL, Scripted([[], []])), [request("a", [1], greedy(3, ignore_eos=True))])
    assert found.drafts == []
    metrics = found["a"].last.spec_decode_metrics
    assert metrics is not None
    assert (metrics.mean_acceptance_length, metrics.draft_acceptance_rate) == (1.0, 0.0)


def test_without_speculation_there_are_no_metrics_of_it() -> None:
    found = run(make_engine(MODEL), [request("a", [1], greedy(3))])
    assert found["a"].last.spec_decode_metrics is None


def test_choices_are_told_apart_and_seeded_one_after_the_other() -> None:
    engine = make_engine(MODEL, NgramDrafter(Options(1, 2)))
    found = run(engine, [request("a", [1, 2, 3, 4, 5], sampled(8, n=3, seed=40))])
    alone = [request(f"s{n}", [1, 2, 3, 4, 5], sampled(8, seed=40 + n)) for n in range(3)]
    expected = plain(MODEL, alone)
    for index in range(3):
        assert found.results["a", index].token_ids == expected[f"s{index}"].token_ids
    assert found.results["a", 1].outputs[0].num_cached_tokens == 4


def test_half_a_character_is_held_back() -> None:
    model = StubModel(script_rule([[1, 28, 29, 30, 28, 5]]))
    engine = make_engine(model, Scripted([]), tokenizer=letters())
    engine.add(request("a", [1], greedy(5)))
    assert [step(engine)[0].text for _ in range(5)] == ["", "é", "!", "", "\ufffdf"]


@pytest.mark.parametrize(
    ("mode", "low", "high", "is_best"),
    [
        ("raw_logprobs", -20.0, -3.0, False),
        ("processed_logprobs", -1e-6, 0.0, True),
        ("raw_logits", 0.0, 3.75, False),
        ("processed_logits", 50.0, 53.75, True),
    ],
)
def test_logprobs_are_what_is_configured(mode: str, low: float, high: float, is_best: bool) -> None:
    params = greedy(4, logprobs=1, prompt_logprobs=0, logit_bias={3: 50.0}, ignore_eos=True)
    engine = make_engine(MODEL, self_draft(MODEL), logprobs_mode=mode)
    found = run(engine, [request("a", [1, 2], params)])["a"]
    assert found.token_ids == [3] * 4
    for entry in found.logprobs or []:
        assert low <= entry[3].logprob <= high
        assert (entry[3].rank == 1) is is_best
        assert len(entry) == (1 if is_best else 2)
    prompt = (found.prompt_logprobs or [])[1]
    assert prompt is not None
    assert (prompt[2].logprob == float(MODEL.row([1])[2])) is mode.endswith("logits"), "nothing biased it"


def test_tokens_after_a_stop_have_no_logprobs() -> None:
    model = StubModel(script_rule([[1, 2, 3, 4, 5, 6, 7, 8]]))
    engine = make_engine(model, Scripted([[3, 4, 5, 6]]), tokenizer=letters())
    found = run(engine, [request("a", [1], greedy(8, stop="de", logprobs=0))])
    assert found["a"].token_ids == [2, 3, 4]
    assert [list(entry) for entry in found["a"].logprobs or []] == [[2], [3], [4]]
    assert (found["a"].text, found["a"].last.stop_reason) == ("c", "de")
    assert found.drafts == [DraftStats(drafted=4, accepted=2, discarded=2)]


# --- asks -------------------------------------------------------------------------------------


def test_nobody_is_asked_in_the_middle_of_a_prompt_or_at_the_end() -> None:
    drafter = Scripted()
    engine = make_engine(MODEL, drafter, budget=8, prompt_rows=8)
    run(engine, [request("a", range(1, 21), greedy(3, ignore_eos=True))])
    assert [num for _, num in drafter.asked] == [1], "after the first token one draft and one token remain"


@pytest.mark.parametrize(("max_tokens", "asked"), [(1, []), (2, []), (3, [1]), (5, [3, 2, 1]), (9, [4] * 4)])
def test_asks_respect_what_max_tokens_leaves(max_tokens: int, asked: list[int]) -> None:
    drafter = Scripted()
    run(make_engine(MODEL, drafter, k=4), [request("a", [1, 2], greedy(max_tokens, ignore_eos=True))])
    assert [num for _, num in drafter.asked][: len(asked)] == asked
    assert len(drafter.asked) == max(0, max_tokens - 2)


def test_asks_respect_what_the_context_leaves() -> None:
    drafter = Scripted()
    engine = make_engine(MODEL, drafter, k=4, max_model_len=10)
    found = run(engine, [request("a", [1] * 4, greedy(None, ignore_eos=True))])  # type: ignore[arg-type]
    assert [num for _, num in drafter.asked] == [4, 3, 2, 1]
    assert (len(found["a"].token_ids), found["a"].finish_reason) == (6, "length")


def test_asks_respect_the_pages_that_are_left() -> None:
    drafter = Scripted()
    engine = make_engine(MODEL, drafter, k=8, num_pages=3, max_model_len=12)
    engine.add(request("a", [1, 2, 3, 4], greedy(9, ignore_eos=True)))
    engine.add(request("b", [5], greedy(9, ignore_eos=True)))
    step(engine)
    assert drafter.asked == [(0, 3), (1, 6)], "4 slots and no free page; 4 slots less one token"


def test_more_guesses_than_asked_are_cut() -> None:
    model = StubModel(script_rule([[1, 2, 3, 4, 5, 6, 7, 8]]))
    found = run(make_engine(model, Scripted([[3, 4, 5, 6, 7]]), k=2), [request("a", [1], greedy(7))])
    assert found.drafts == [DraftStats(2, 2, 0)]
    assert found["a"].token_ids == [2, 3, 4, 5, 6, 7, 8]


# --- admission --------------------------------------------------------------------------------


def test_too_many_waiting_are_refused_and_leave_nothing() -> None:
    engine, _ = recorded(max_waiting=2, max_num_seqs=1)
    for name in "ab":
        engine.add(request(name, [1, 2], greedy(3)))
    late = request("c", [1, 2], greedy(3))
    assert not engine.has_room_for(late)
    with pytest.raises(Overloaded):
        engine.add(late)
    assert engine.abort("c") == []
    step(engine)
    assert engine.has_room_for(late)
    assert len(run(engine, [late]).results) == 3


def test_check_refuses_what_can_never_be_served() -> None:
    engine, _ = recorded(max_model_len=16)
    with pytest.raises(InvalidRequest, match="maximum context length is 16"):
        engine.check(request("a", [1] * 16))
    assert not engine.has_work


def test_the_end_token_ends_every_choice() -> None:
    model = StubModel(script_rule([[1, 2, 3, EOS, 4, 5]]))
    found = run(make_engine(model, always_right([[1, 2, 3, EOS, 4, 5]])), [request("a", [1], greedy(9))])
    assert (found["a"].token_ids, found["a"].finish_reason) == ([2, 3, EOS], "stop")


def test_the_snapshot_shows_gauges_and_no_counts() -> None:
    engine, _ = recorded(max_num_seqs=1, num_pages=4)
    for name in "ab":
        engine.add(request(name, [1, 2], greedy(5, ignore_eos=True)))
    assert (engine.snapshot().num_running, engine.snapshot().num_waiting) == (0, 2)
    step(engine)
    now = engine.snapshot()
    assert (now.num_running, now.num_waiting, now.kv_cache_usage) == (1, 1, 0.25)
    assert (now.num_rows, now.finished, now.drafts) == (0, [], [])


def test_a_drafter_that_cannot_forget_costs_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(NoDraft):
        def forget(self, seq_ids: list[int]) -> None:
            raise RuntimeError(f"who are {seq_ids}?")

    engine = make_engine(MODEL, Stubborn())
    engine.add(request("gone", [1, 2, 3]))
    engine.step()
    engine.abort("gone")
    found = run(engine, [request("stays", [1, 2, 3])])
    assert found["stays"].finish_reason is not None
    assert caplog.text.count("could not forget") == 2
