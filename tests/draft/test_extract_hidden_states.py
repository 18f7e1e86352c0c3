"""The states of every text's rows, under all that can happen to it on the way."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from specserve import LLM, SamplingParams
from specserve.draft import extract_hidden_states
from specserve.draft.chain import ChainDrafter, Member
from specserve.draft.config import TargetInfo
from specserve.draft.extract_hidden_states import HiddenStates, Options, build
from specserve.draft.hidden_files import Shape, TextFile
from specserve.draft.ngram import NgramDrafter
from specserve.draft.ngram import Options as Lookup
from specserve.engine.engine import Engine
from specserve.errors import ConfigError, InvalidRequest
from specserve.llm import RequestOutput
from specserve.types import Output
from tests.contract.drafter import (
    build_engine,
    check_answers,
    check_forgetting,
    check_observing_twice,
    workload,
)
from tests.support.engine import greedy, letters, make_engine, plain, request, run
from tests.support.stub import StubModel
from tests.support.tiny import write_tiny
from tests.support.traffic import mixed_traffic
from tests.support.zoo import Habitat

MODEL = StubModel()
LAYERS = [2, 0]


def hidden_states(folder: Path, model: StubModel = MODEL, **options: Any) -> HiddenStates:
    target = TargetInfo(
        model="stub", vocab_size=32, max_model_len=48, num_layers=1, hidden_size=model.hidden_size
    )
    config = {"hf_config": {"eagle_aux_hidden_state_layer_ids": LAYERS}}
    return build(Options(config, str(folder), **options), target)


def check_file(folder: Path, name: str, tokens: list[int]) -> None:
    """It has the true states of these tokens, the stub's by definition."""
    found = load_file(folder / f"{name}.safetensors")
    assert found["token_ids"].tolist() == tokens
    truth = torch.from_numpy(MODEL.rule(np.array(tokens, np.int64), 0))
    assert torch.equal(found["hidden_states"], torch.stack([truth + layer for layer in LAYERS], 1))


@pytest.mark.parametrize("includes_output", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_files_hold_the_true_rows_after_preemption_chunks_and_refused_guesses(
    tmp_path: Path, seed: int, includes_output: bool
) -> None:
    writer = hidden_states(tmp_path, include_output_tokens=includes_output)
    chain = ChainDrafter([Member("ngram", NgramDrafter(Lookup(1, 3)), 6), Member("writer", writer, 1)])
    requests = workload(seed)
    engine = build_engine(chain, MODEL, seed)
    found = run(engine, requests, arrivals={one.request_id: 2 * i for i, one in enumerate(requests)})
    assert found.total("num_preemptions") > 0 or seed
    assert found.num_accepted > 0
    for one in requests:
        text = [*one.prompt_token_ids, *found[one.request_id].token_ids]
        check_file(tmp_path, one.request_id, text[:-1] if includes_output else one.prompt_token_ids)
    assert len(list(tmp_path.iterdir())) == len(requests)


def test_every_choice_has_a_file_and_no_answer_changes(tmp_path: Path) -> None:
    requests = mixed_traffic()
    options: dict[str, Any] = {"tokenizer": letters()}
    expected = plain(MODEL, requests, num_pages=48, page_size=1, **options)
    engine = make_engine(MODEL, hidden_states(tmp_path), k=1, num_pages=30, max_model_len=48, **options)
    assert run(engine, requests).answers == expected.answers
    names = {f"{name}.{i}" if name == "choices" else name for name, i in expected.results}
    assert {path.stem for path in tmp_path.iterdir()} == names
    for one in requests:
        if one.request_id != "choices":
            check_file(tmp_path, one.request_id, one.prompt_token_ids)


def drafter(folder: Path) -> Any:
    def make(habitat: Habitat) -> HiddenStates:
        return hidden_states(folder, habitat.model, include_output_tokens=True)

    return make


@pytest.mark.parametrize(
    "check", [partial(check_answers, shares_pages=False), check_observing_twice, check_forgetting]
)
def test_it_fulfils_the_contract_but_shares_no_page(tmp_path: Path, check: Any) -> None:
    check(drafter(tmp_path))


@pytest.mark.parametrize("num_steps", [0, 2, 5])
def test_a_text_that_is_aborted_leaves_nothing(tmp_path: Path, num_steps: int) -> None:
    """While it waits, inside its prompt, and among its outputs."""
    writer = hidden_states(tmp_path)
    engine = make_engine(MODEL, writer, k=1, budget=4)
    engine.add(request("a", list(range(12)), greedy(8, ignore_eos=True)))
    for _ in range(num_steps):
        engine.step()
    engine.abort("a")
    assert list(tmp_path.iterdir()) == []
    run(engine, [request("b", list(range(12)), greedy(8, ignore_eos=True))])
    check_file(tmp_path, "b", list(range(12)))


def test_a_request_decides_about_its_output(tmp_path: Path) -> None:
    engine = make_engine(MODEL, hidden_states(tmp_path), k=1)
    params = greedy(4, ignore_eos=True)
    asked = {"kv_transfer_params": {"include_output_tokens": True}}
    both = [request("a", [1, 2, 3], params), request("b", [1, 2, 3], replace(params, extra_args=asked))]
    found = run(engine, both)
    check_file(tmp_path, "a", [1, 2, 3])
    check_file(tmp_path, "b", [1, 2, 3, *found["b"].token_ids[:-1]])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([1], r"kv_transfer_params must be an object, got \[1\]"),
        ({"include_output_tokens": 1}, "include_output_tokens must be true or false, got 1"),
        ({"hidden_states_path": "/x"}, "hidden_states_path='/x' cannot be chosen.*Leave it out"),
    ],
)
def test_what_a_request_may_not_ask_is_told(asked: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        SamplingParams(extra_args={"kv_transfer_params": asked})


def test_where_there_is_no_room_requests_go_on_without_a_file(tmp_path: Path) -> None:
    cap = Shape(tuple(LAYERS), MODEL.hidden_size, "float32").file_bytes(4)
    engine = make_engine(MODEL, hidden_states(tmp_path, hidden_states_max_bytes=cap), k=1)
    for name in "ab":
        engine.add(request(name, [1, 2, 3, 4], greedy(8, ignore_eos=True)))
    last = {one.request_id: one for one in outputs(engine) if one.finish_reason}
    assert {one.finish_reason for one in last.values()} == {"length"}
    assert last["a"].kv_transfer_params == {"hidden_states_path": str(tmp_path / "a.safetensors")}
    assert last["b"].kv_transfer_params is not None
    assert "has no room" in last["b"].kv_transfer_params["hidden_states_error"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize("verb", ["write", "finish"])
def test_a_disk_that_fails_costs_the_file_and_not_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "a.safetensors").touch()  # of an earlier run: it is not this request's
    monkeypatch.setattr(TextFile, verb, fail)
    engine = make_engine(MODEL, hidden_states(tmp_path), k=1)
    engine.add(request("a", [1, 2, 3, 4], greedy(8, ignore_eos=True)))
    with caplog.at_level(logging.ERROR):
        found = outputs(engine)
    assert [token for one in found for token in one.token_ids] == MODEL.continuation([1, 2, 3, 4], 8)
    told = "[Errno 28] No space left on device"
    assert found[-1].kv_transfer_params == {"hidden_states_error": told}
    assert f"The hidden states of a are not kept: {told}" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def outputs(engine: Engine) -> list[Output]:
    found: list[Output] = []
    while engine.has_work:
        found += engine.step().outputs
    return found


def test_a_request_without_a_name_leaves_nothing(tmp_path: Path) -> None:
    run(make_engine(MODEL, hidden_states(tmp_path), k=1), [request("", [1, 2, 3], greedy(4))])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"shared_storage_path=.* cannot be written to .*; name") as caught:
        hidden_states(tmp_path / "file" / "folder")
    assert caught.value.param == "shared_storage_path"


def test_a_folder_is_tried_and_not_only_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(extract_hidden_states, "TemporaryFile", refuse)
    with pytest.raises(ConfigError, match="cannot be written to"):
        hidden_states(tmp_path)


def test_room_for_less_than_one_token_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hidden_states_max_bytes=100 is less than .*; raise it") as caught:
        hidden_states(tmp_path, hidden_states_max_bytes=100)
    assert caught.value.param == "hidden_states_max_bytes"


# --- against transformers -----------------------------------------------------------------------


def config_for(folder: Path, *layers: int) -> dict[str, Any]:
    return {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(layers)}},
        "shared_storage_path": str(folder),
    }


def check_against(twin: PreTrainedModel, reply: RequestOutput, layers: list[int], tolerance: float) -> None:
    """The file that the reply names has the states of its tokens."""
    assert reply.kv_transfer_params is not None
    found = load_file(reply.kv_transfer_params["hidden_states_path"])
    tokens = [*reply.prompt_token_ids, *reply.outputs[0].token_ids][:-1]
    assert found["token_ids"].tolist() == tokens
    with torch.no_grad():
        states = twin(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    expected = torch.stack([states[layer][0] for layer in layers], 1)
    torch.testing.assert_close(found["hidden_states"], expected, atol=tolerance, rtol=1e-3)


PROMPTS = [[5, 6, 7, 8, 9, 10, 11, 12, 13], [5, 6, 7, 8, 9], [40]]
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


@pytest.mark.parametrize("is_eager", [False, True], ids=["native", "eager"])
def test_states_are_those_of_transformers_and_texts_those_of_plain_serving(
    tmp_path: Path, is_eager: bool
) -> None:
    folder = write_tiny(tmp_path / "model")
    options: dict[str, Any] = {
        "kv_cache_memory_bytes": "1M",
        "num_threads": 1,
        "dtype": "float32",
        "enforce_eager": is_eager,
        "max_num_batched_tokens": 4,
    }
    config = config_for(tmp_path / "states", 2, 0) | {"include_output_tokens": True}
    replies = LLM(str(folder), **options, speculative_config=config).generate(PROMPTS, GREEDY)
    twin = AutoModelForCausalLM.from_pretrained(folder)
    for reply in replies:
        check_against(twin, reply, [2, 0], 1e-4)
    expected = LLM(str(folder), **options).generate(PROMPTS, GREEDY)
    assert [one.outputs[0].token_ids for one in replies] == [one.outputs[0].token_ids for one in expected]


def test_each_choice_says_where_its_file_is(tmp_path: Path) -> None:
    options: dict[str, Any] = {"kv_cache_memory_bytes": "1M", "num_threads": 1, "dtype": "float32"}
    model = write_tiny(tmp_path / "model")
    llm = LLM(str(model), **options, speculative_config=config_for(tmp_path / "states", 0))
    [reply] = llm.generate([[5, 6]], SamplingParams(n=2, max_tokens=2, seed=1))
    paths = [(one.kv_transfer_params or {})["hidden_states_path"] for one in reply.outputs]
    assert [Path(path).name for path in paths] == ["0.0.safetensors", "0.1.safetensors"]
    assert all(load_file(path)["token_ids"].tolist() == [5, 6] for path in paths)
    assert reply.kv_transfer_params == {"hidden_states_path": paths[0]}
