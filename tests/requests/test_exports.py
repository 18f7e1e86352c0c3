"""A reply says where the file is that was written of its request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.support.deployment import serving
from tests.support.server import Running
from tests.support.tiny import deploy_tiny, write_tiny

BODY = {"prompt": "abc", "max_tokens": 4, "temperature": 0, "request_id": "../mine"}


@pytest.fixture
def server(tmp_path: Path) -> Any:
    layers = {"hf_config": {"eagle_aux_hidden_state_layer_ids": [1, 2]}}
    members = [
        {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1},
        {
            "method": "extract_hidden_states",
            "draft_model_config": layers,
            "shared_storage_path": str(tmp_path / "states"),
        },
    ]
    config = {"speculative_config": {"method": "chain", "drafters": members}}
    with serving(deploy_tiny(write_tiny(tmp_path / "model"), config)) as running:
        yield running


def test_a_reply_and_the_last_chunk_of_a_stream_name_a_file(server: Running, tmp_path: Path) -> None:
    reply = server.complete(**BODY, return_token_ids=True)
    path = Path(reply["kv_transfer_params"]["hidden_states_path"])
    assert path.parent == tmp_path / "states"
    found = load_file(path)
    assert found["token_ids"].tolist() == reply["choices"][0]["prompt_token_ids"]
    assert found["hidden_states"].shape[1:] == (2, 64)
    events = server.post("/v1/completions", **BODY, stream=True).text.split("\n\n")[:-2]
    *before, last = [json.loads(event[6:]) for event in events]
    assert load_file(last["kv_transfer_params"]["hidden_states_path"])["hidden_states"].shape == (
        found["hidden_states"].shape
    )
    assert not any("kv_transfer_params" in chunk for chunk in before)


def test_a_member_that_never_guesses_leaves_the_others_be(server: Running) -> None:
    body = {**BODY, "max_tokens": 40, "ignore_eos": True}
    both = server.complete(**body, speculation={"enabled": True})
    off = server.complete(**body, speculation={"enabled": False})
    assert both["choices"][0]["text"] == off["choices"][0]["text"]
    assert set(both["metrics"]["speculative_decoding"]["by_source"]) <= {"ngram"}


def test_of_several_texts_each_choice_names_its_own(server: Running) -> None:
    reply = server.complete(prompt=["abc", "bcd"], max_tokens=2, n=2, return_token_ids=True)
    assert "kv_transfer_params" not in reply
    paths = [choice["kv_transfer_params"]["hidden_states_path"] for choice in reply["choices"]]
    assert len(set(paths)) == 4
    for choice, path in zip(reply["choices"], paths, strict=True):
        assert load_file(path)["token_ids"].tolist() == choice["prompt_token_ids"]


def test_a_request_may_ask_for_its_output(server: Running) -> None:
    asked = {"include_output_tokens": True}
    reply = server.complete(**BODY, ignore_eos=True, kv_transfer_params=asked)
    found = load_file(reply["kv_transfer_params"]["hidden_states_path"])
    assert len(found["token_ids"]) == reply["usage"]["total_tokens"] - 1
    refused = server.post("/v1/completions", **BODY, kv_transfer_params={"include_output_tokens": "yes"})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "kv_transfer_params.include_output_tokens"


@pytest.mark.usefixtures("server")
def test_the_warm_up_leaves_no_file(tmp_path: Path) -> None:
    assert list((tmp_path / "states").iterdir()) == []
