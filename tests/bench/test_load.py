"""Known times come out as they went in: answers of a scripted server, on a clock that only waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from specserve.bench.answers import Answer
from specserve.bench.arrivals import arrival_times
from specserve.bench.dataset import Question
from specserve.bench.load import Load, run_load
from specserve.bench.serving_figures import Wanted, serving_figures
from specserve.bench.wire import Call, Line
from tests.support.scripted_wire import Script, ScriptedWire, steady
from tests.support.virtual_time import run_virtually

PER_CENT = 0.01


def run(
    scripts: Sequence[Script],
    arrivals: Sequence[float] | None = None,
    max_concurrency: int | None = None,
    categories: Sequence[str] = ("qa",),
) -> Load:
    wire = ScriptedWire(lambda number, _: scripts[number])
    requests = [
        (Question("x", categories[number % len(categories)], 9), Call("/v1/completions", {"prompt": "x"}))
        for number in range(len(scripts))
    ]
    return run_virtually(run_load(wire, requests, arrivals or [0.0] * len(scripts), max_concurrency))


def figures(load: Load, wanted: Wanted | None = None) -> dict[str, Any]:
    return serving_figures(load.answers, load.duration, wanted or Wanted())


def test_one_after_the_other() -> None:
    """Four answers of 10 chunks with 3 tokens each: 0.2 s to the first, 0.05 s between the others."""
    found = figures(run([steady(10, per_chunk=3)] * 4, max_concurrency=1))
    alone = 0.2 + 9 * 0.05
    expected = {
        "duration": 4 * alone,
        "completed": 4,
        "failed": 0,
        "total_input_tokens": 40,
        "total_output_tokens": 120,
        "request_throughput": 1 / alone,
        "output_throughput": 30 / alone,
        "total_token_throughput": 40 / alone,
        "max_concurrent_requests": 1,
        "mean_ttft_ms": 200,
        "median_tpot_ms": 450 / 29,
        "p99_tpot_ms": 450 / 29,
        "mean_itl_ms": 50,
        "std_itl_ms": 0,
        "p99_e2el_ms": 1e3 * alone,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=PER_CENT, abs=1e-6)


@pytest.mark.parametrize(("places", "seconds"), [(1, 8.0), (3, 3.0), (8, 1.0), (None, 1.0)])
def test_no_more_at_once_than_allowed(places: int | None, seconds: float) -> None:
    load = run([steady(9, first=0.2, gap=0.1)] * 8, max_concurrency=places)
    assert load.duration == pytest.approx(seconds, rel=PER_CENT)
    assert figures(load)["max_concurrent_requests"] == (places or 8)
    assert figures(load)["mean_ttft_ms"] == pytest.approx(
        200, rel=PER_CENT
    )  # waiting for a place is not in it


def test_requests_are_sent_when_they_arrive() -> None:
    arrivals = arrival_times(200, 5.0, seed=2)
    load = run([steady(2)] * 200, arrivals)
    assert [answer.sent for answer in load.answers] == pytest.approx(arrivals)
    assert load.duration == pytest.approx(40 + 0.25, rel=PER_CENT)
    assert figures(load)["request_throughput"] == pytest.approx(200 / 40.25, rel=PER_CENT)


def test_percentiles_are_of_all_answers() -> None:
    firsts = [0.01 * number for number in range(1, 101)]
    found = figures(run([steady(3, first=first) for first in firsts]), Wanted((50.0, 90.0, 99.9)))
    for name, percentile in (("p50", 50), ("p90", 90), ("p99.9", 99.9)):
        expected = 1e3 * np.percentile(firsts, percentile)
        assert found[f"{name}_ttft_ms"] == pytest.approx(expected, rel=PER_CENT)
    assert found["std_ttft_ms"] == pytest.approx(1e3 * np.std(firsts), rel=PER_CENT)


def test_good_requests_keep_all_limits() -> None:
    scripts = [steady(5, first=0.1), steady(5, first=0.4), steady(5, gap=0.3), steady(1, first=0.1)]
    load = run(scripts, max_concurrency=1)
    found = figures(load, Wanted(limits={"ttft": 250.0, "tpot": 100.0}))
    assert found["request_goodput"] == pytest.approx(2 / load.duration)
    assert figures(load)["request_goodput"] is None
    strict = figures(load, Wanted(limits={"itl": 60.0, "e2el": 310.0}))
    assert strict["request_goodput"] == pytest.approx(2 / load.duration)


def test_the_peak_counts_tokens_and_not_chunks() -> None:
    load = run([steady(10, first=0.1, gap=0.1, per_chunk=4)], max_concurrency=1)
    assert figures(load)["max_output_tokens_per_s"] == pytest.approx(36, abs=4.1)


def test_a_categorys_time_is_when_its_requests_ran() -> None:
    scripts = [steady(11, first=0.1, gap=0.1), steady(21, first=0.1, gap=0.1)] * 2
    load = run(scripts, max_concurrency=1, categories=("qa", "rag"))
    found = figures(load)["categories"]
    assert list(found) == ["qa", "rag"]
    assert found["qa"]["duration"] == pytest.approx(2.2, rel=PER_CENT)
    assert found["rag"]["output_throughput"] == pytest.approx(42 / 4.2, rel=PER_CENT)
    together = figures(run(scripts, categories=("qa", "rag")))["categories"]
    assert together["qa"]["duration"] == pytest.approx(1.1, rel=PER_CENT)


def test_acceptance_is_added_up_per_category() -> None:
    def own(accepted: list[int]) -> dict[str, Any]:
        counts = sum(at * count for at, count in enumerate(accepted))
        fields = {
            "num_draft_tokens": 8,
            "num_accepted_draft_tokens": counts,
            "acceptance_histogram": accepted,
        }
        return {"metrics": {"speculative_decoding": fields}}

    scripts = [steady(3, more=own([2, 0, 2])), steady(3, more=own([4, 0, 0])), steady(3, more=own([0, 4, 0]))]
    found = figures(run(scripts, categories=("a", "b")))
    assert found["spec_decode_num_drafts"] == 12
    assert found["acceptance_per_position"] == pytest.approx([6 / 12, 2 / 12])
    assert found["categories"]["a"]["acceptance_per_position"] == pytest.approx([6 / 8, 2 / 8])
    assert found["categories"]["b"]["spec_decode_acceptance_length"] == 1.0


def test_failures_are_counted_and_left_out() -> None:
    scripts = [steady(3), Script([], [], status=500), steady(3)]
    load = run(scripts)
    found = figures(load)
    assert (found["completed"], found["failed"], found["total_output_tokens"]) == (2, 1, 6)
    assert load.answers[1].error == "500: no"
    assert figures(Load([load.answers[1]], 1.0))["mean_ttft_ms"] == 0.0


def test_a_network_that_fails_fails_its_request_only() -> None:
    class Broken(ScriptedWire):
        async def connect(self) -> Line:
            raise ConnectionRefusedError("nobody there")

    request = (Question("x", "qa", 9), Call("/v1/completions", {"prompt": "x"}))
    [answer] = run_virtually(run_load(Broken(lambda *_: steady(1)), [request], [0.0], 1)).answers
    assert answer.error == "cannot connect: nobody there"


def test_the_digest_is_of_all_texts_in_order() -> None:
    def digest(*texts: str) -> str:
        question = Question("x", "qa", 9)
        answers = [Answer(question, 0.0, (0.1,), 0.1, text, 1, 1) for text in texts]
        return str(serving_figures(answers, 1.0, Wanted())["output_sha256"])

    assert digest("a", "b") == digest("a", "b")
    assert len({digest("a", "b"), digest("b", "a"), digest("ab", ""), digest("ab")}) == 4


def test_on_answer_is_called_once_each() -> None:
    calls: list[Mapping[str, Any]] = []
    wire = ScriptedWire(lambda *_: steady(2))
    request = (Question("x", "qa", 9), Call("/v1/completions", {"prompt": "x"}))
    run_virtually(run_load(wire, [request] * 3, [0.0] * 3, 2, lambda: calls.append({})))
    assert len(calls) == len(wire.calls) == 3
