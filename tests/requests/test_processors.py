"""Logits processors with guesses in flight: the text is plain decoding's through the same processors."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from threading import Event
from typing import Any

import pytest
from torch import Tensor

from specserve.config.engine import engine_config
from specserve.engine.choose import choose
from specserve.errors import ConfigError
from specserve.sampling import processors
from specserve.sampling.processors import LogitsProcessor, load_processors
from specserve.server.ticket import Ticket
from specserve.types import Output, Request, SamplingParams, StepOutputs
from tests.support.deployment import deploy, serving
from tests.support.drafters import self_draft
from tests.support.engine import greedy, make_engine, plain, request, run
from tests.support.server import Running
from tests.support.stub import StubModel
from tests.support.traffic import sampled
from tests.support.witness import Recording
from tests.support.zoo import ZOO, Habitat

MODEL = StubModel()
PROCESSORS = load_processors(
    [f"tests.support.processors:{name}" for name in ("no_repeats", "alternate", "breaks")]
)
EXTRA: dict[str, dict[str, Any] | None] = {
    "none": None,
    "repeats": {"no_repeats": 4},
    "alternate": {"alternate": True},
    "both": {"no_repeats": 2, "alternate": True},
}


def traffic() -> list[Request]:
    """Beside one another: with and without processors, greedy and drawn, with penalties and filters."""
    kinds = {
        "greedy": greedy(20, ignore_eos=True, logprobs=2),
        "sampled": sampled(20, ignore_eos=True, top_p=0.9, min_tokens=3, frequency_penalty=0.5),
        "choices": sampled(12, n=2, top_k=6),
    }
    return [
        request(f"{kind}-{name}", [5, 6, 7], replace(params, extra_args=extra))
        for kind, params in kinds.items()
        for name, extra in EXTRA.items()
    ]


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs"])
@pytest.mark.parametrize("name", ZOO)
def test_text_and_logprobs_are_those_without_speculation(name: str, mode: str) -> None:
    expected = plain(MODEL, traffic(), processors=PROCESSORS, logprobs_mode=mode)
    texts = [[5, 6, 7, *result.token_ids] for result in expected.results.values()]
    drafter = Recording(ZOO[name](Habitat(MODEL, texts, page_size=4, k=4)), 4, MODEL)
    engine = make_engine(
        MODEL, drafter, processors=PROCESSORS, logprobs_mode=mode, num_pages=16, max_model_len=48, budget=20
    )
    found = run(engine, traffic())
    assert found.answers == expected.answers
    assert found.total("num_preemptions") > 0
    if name != "always-wrong":
        assert found.num_accepted > 0


def test_a_processor_does_what_it_says() -> None:
    found = plain(MODEL, traffic(), processors=PROCESSORS)
    for kind in ("greedy", "sampled", "choices"):
        assert all(token % 2 == place % 2 for place, token in enumerate(found[f"{kind}-alternate"].token_ids))
        text = [5, 6, 7, *found[f"{kind}-repeats"].token_ids]
        assert all(text[at] not in text[max(0, at - 4) : at] for at in range(3, len(text)))
        assert found[f"{kind}-none"].token_ids != found[f"{kind}-both"].token_ids


def test_a_processor_that_is_not_shown_the_guesses_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_texts", lambda output, draft, _: [list(output)] * (1 + len(draft)))
    engine = make_engine(MODEL, self_draft(MODEL), processors=PROCESSORS)
    assert run(engine, traffic()).answers != plain(MODEL, traffic(), processors=PROCESSORS).answers


def test_over_http_arguments_come_as_vllm_xargs() -> None:
    body = {"prompt": "fgh", "temperature": 0, "max_tokens": 12, "ignore_eos": True, "return_token_ids": True}
    with serving(deploy(processors=PROCESSORS)) as server:
        ids = {
            name: server.complete(**body, **({} if extra is None else {"vllm_xargs": extra}))["choices"][0][
                "token_ids"
            ]
            for name, extra in EXTRA.items()
        }
        refused = server.post("/v1/completions", **body, vllm_xargs={"no_repeats": "x"})
    assert all(token % 2 == place % 2 for place, token in enumerate(ids["alternate"]))
    assert len({tuple(text) for text in ids.values()}) == 4
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "vllm_xargs"
    assert "no_repeats must be an integer" in refused.json()["error"]["message"]


# --- those that break -------------------------------------------------------------------------

BROKEN = {
    "at once": (greedy(20, ignore_eos=True), {"breaks": "error"}, 0),
    "later": (greedy(20, ignore_eos=True, logprobs=1), {"breaks": "error", "after": 7}, 7),
    "no tensor": (sampled(20, ignore_eos=True), {"breaks": "type", "after": 1}, 1),
    "no row": (sampled(20, n=2, top_k=9, ignore_eos=True), {"breaks": "shape", "after": 12}, 12),
    "too late": (greedy(9, ignore_eos=True), {"breaks": "error", "after": 9}, 9),
}


def broken_requests() -> list[Request]:
    return [
        request(name, [5, 6, 7], replace(one, extra_args=extra)) for name, (one, extra, _) in BROKEN.items()
    ]


@pytest.mark.parametrize("name", ZOO)
def test_one_that_breaks_ends_its_own_request_and_no_other(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At the token where it breaks without guesses, too."""
    requests = [*traffic(), *broken_requests()]
    expected = plain(MODEL, requests, processors=PROCESSORS)
    texts = [[5, 6, 7, *result.token_ids] for result in expected.results.values()]
    caplog.clear()
    drafter = Recording(ZOO[name](Habitat(MODEL, texts, page_size=4, k=4)), 4, MODEL)
    engine = make_engine(
        MODEL, drafter, processors=PROCESSORS, num_pages=24, max_model_len=48, budget=20, max_num_seqs=12
    )
    found = run(engine, requests, arrivals={one.request_id: i % 5 for i, one in enumerate(requests)})
    assert found.answers == expected.answers
    for one in broken_requests():
        _, _, after = BROKEN[one.request_id]
        for index in range(one.params.n):
            result = found.results[one.request_id, index]
            assert len(result.token_ids) == after
            assert result.finish_reason == ("length" if one.request_id == "too late" else "error")
    ended = [stats.finish_reason for step in found.steps for stats in step.finished]
    assert len(ended) == len(found.results)
    assert ended.count("error") == caplog.text.count("Ended with an error") == 5


@pytest.mark.parametrize("name", ["always-wrong", "random", "end-inside", "ngram"])
def test_what_breaks_one_on_a_guess_that_is_refused_costs_nothing(name: str) -> None:
    (plainly,) = plain(MODEL, [request("a", [5, 6, 7], greedy(20, ignore_eos=True))]).results.values()
    processor, raised = picky(plainly.token_ids)
    drafter = ZOO[name](Habitat(MODEL, [[5, 6, 7, *plainly.token_ids]], page_size=4, k=4))
    engine = make_engine(MODEL, drafter, processors=[processor])
    found = run(engine, [request("a", [5, 6, 7], greedy(20, ignore_eos=True))])
    assert found["a"].answer == plainly.answer
    assert raised


def picky(known: list[int]) -> tuple[LogitsProcessor, list[list[int]]]:
    """One that understands a single text, and what else it was shown."""
    raised: list[list[int]] = []

    def process(output: list[int], logits: Tensor) -> Tensor:
        if output != known[: len(output)]:
            raised.append(output)
            raise KeyError(output[-1])
        return logits

    return LogitsProcessor("picky", lambda _: process), raised


def test_over_http_the_others_of_its_step_are_answered() -> None:
    """Three requests in the very same steps; one breaks at once, one in the middle of its stream."""
    body = {"prompt": "fgh", "temperature": 0, "max_tokens": 12, "ignore_eos": True, "return_token_ids": True}
    late = {"stream": True, "vllm_xargs": {"breaks": "error", "after": 9}}
    deployment = deploy(processors=PROCESSORS)
    with serving(deployment) as server:
        alone = server.complete(**body)["choices"]
        steps = together(server, 3)
        with ThreadPoolExecutor(3) as pool:
            at_once = pool.submit(server.post, "/v1/completions", **body, vllm_xargs={"breaks": "shape"})
            streamed = pool.submit(server.post, "/v1/completions", **body, **late)
            good = pool.submit(server.complete, **body)
            assert good.result()["choices"] == alone
        assert at_once.result().status_code == 500
        # An event, or the whole reply where none of the stream was on its way yet.
        assert '"code":500' in streamed.result().text
        assert server.complete(**body)["choices"] == alone
        metrics = server.client.get("/metrics").text
    reasons = [{output.request_id: output.finish_reason for output in step} for step in steps]
    assert sorted(map(str, reasons[0].values())) == ["None", "None", "error"]
    assert re.search(r'request_success_total\{.*finished_reason="error".*\} 2.0', metrics)


def together(server: Running, num: int) -> list[list[Output]]:
    """Let the engine wait until so many requests have come; its further outputs, by step."""
    arrived, steps = Event(), []
    submit, add, step = server.bridge.submit, server.engine.add, server.engine.step
    tickets = count(1)

    def counting(ticket: Ticket) -> None:
        submit(ticket)
        if next(tickets) == num:
            arrived.set()

    def waiting(one: Request) -> None:
        assert arrived.wait(10)
        add(one)

    def recording() -> StepOutputs:
        done = step()
        steps.append(done.outputs)
        return done

    server.bridge.submit = counting  # type: ignore[method-assign]
    server.engine.add, server.engine.step = waiting, recording
    return steps


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_one_that_breaks_as_the_request_comes_is_a_500(path: str) -> None:
    def new_request(params: SamplingParams) -> None:
        if params.extra_args:
            raise KeyError("secret")

    with serving(deploy(processors=[LogitsProcessor("x", new_request)]), chat_template="{{ 'a' }}") as server:
        body = {"max_tokens": 5, "temperature": 0}
        body |= {"prompt": "f"} if path == "completions" else {"messages": [{"role": "user", "content": "a"}]}
        reply = server.post(f"/v1/{path}", **body, vllm_xargs={"breaks": "error"})
        assert reply.status_code == 500
        assert "secret" not in reply.text
        assert server.post(f"/v1/{path}", **body).status_code == 200


def test_a_name_that_is_nobody_s_is_an_error_before_weights_are_loaded() -> None:
    config = engine_config({"model": "smollm2-135m", "logits_processors": ["nobody's"]})
    with pytest.raises(ConfigError, match='logits_processors has "nobody\'s"'):
        choose(config, is_offline=True)
