"""Logits processors with guesses in flight: the text is plain decoding's through the same processors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specserve.config.engine import engine_config
from specserve.engine.choose import choose
from specserve.errors import ConfigError
from specserve.sampling import processors
from specserve.sampling.processors import load_processors
from specserve.types import Request
from tests.support.deployment import deploy, serving
from tests.support.drafters import self_draft
from tests.support.engine import greedy, make_engine, plain, request, run
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
        MODEL, drafter, processors=PROCESSORS, logprobs_mode=mode, num_pages=24, max_model_len=48, budget=20
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
    assert refused.json()["error"]["param"] == "extra_args"
    assert "no_repeats must be an integer" in refused.json()["error"]["message"]


def test_a_processor_that_breaks_ends_its_step_and_the_server_lives() -> None:
    with serving(deploy(processors=PROCESSORS)) as server:
        body = {"prompt": "fgh", "max_tokens": 5, "temperature": 0}
        reply = server.post("/v1/completions", **body, vllm_xargs={"breaks": "error"})
        assert reply.status_code == 500
        assert server.complete(**body)["usage"]["completion_tokens"] > 0


def test_a_name_that_is_nobody_s_is_an_error_before_weights_are_loaded() -> None:
    config = engine_config({"model": "smollm2-135m", "logits_processors": ["nobody's"]})
    with pytest.raises(ConfigError, match='logits_processors has "nobody\'s"'):
        choose(config, is_offline=True)
