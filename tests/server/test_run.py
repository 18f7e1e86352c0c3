"""The server assembled from configurations, in front of the real engine with a stub target."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from specserve.config.environment import Environment
from specserve.config.server import ServerConfig
from specserve.errors import ConfigError
from specserve.server.run import assemble
from tests.support.deployment import ENVIRONMENT, deploy, serving
from tests.support.server import Running, free_port, running

GREEDY = {"temperature": 0, "ignore_eos": True}


def samples(server: Running) -> dict[str, float]:
    """Values by name, labels ignored: each series adds up."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(server.client.get("/metrics").text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_the_stream_the_whole_and_the_text_without_speculation_are_the_same() -> None:
    texts = set()
    for k in (0, 3, 4):
        with serving(deploy(k=k)) as server:
            body = {"prompt": "abc", "max_tokens": 60, **GREEDY}
            texts.add(server.complete(**body)["choices"][0]["text"])
            events = server.post("/v1/completions", **body, stream=True).text.split("\n\n")[:-2]
            texts.add("".join(json.loads(event[6:])["choices"][0]["text"] for event in events))
            assert len(events) < (60 if k else 61)
    assert len(texts) == 1


def test_a_stop_string_inside_a_block_ends_everything_there() -> None:
    with serving(deploy(k=8)) as server:
        body = {"prompt": "abc", "max_tokens": 60, "logprobs": 1, "return_token_ids": True, **GREEDY}
        [whole] = server.complete(**body)["choices"]
        stop = whole["text"][9:12]
        reply = server.complete(**body, stop=stop)
        [cut] = reply["choices"]
        assert cut["text"] == whole["text"].split(stop)[0]
        assert cut["stop_reason"] == stop
        num_tokens = reply["usage"]["completion_tokens"]
        assert cut["token_ids"] == whole["token_ids"][:num_tokens]
        assert cut["logprobs"]["tokens"] == whole["logprobs"]["tokens"][:num_tokens]


def test_a_second_prompt_finds_the_first_one_s_pages_unless_it_is_another_tenant_s() -> None:
    with serving(deploy(), api_key=["one", "two"]) as server:
        body = {"prompt": "abcdefghijklmnop", "max_tokens": 2, **GREEDY}
        cached = []
        for key, salt in (("one", None), ("one", None), ("two", None), ("one", "salt"), ("one", "salt")):
            headers = {"authorization": f"Bearer {key}"}
            reply = server.client.post("/v1/completions", json=body | {"cache_salt": salt}, headers=headers)
            cached.append(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert cached == [0, 12, 0, 0, 12]


def test_limits_of_the_engine_are_400s() -> None:
    with serving(deploy(max_model_len=40, max_logprobs=3)) as server:
        for body, part in (
            ({"prompt": "a" * 30, "max_tokens": 20}, "maximum context length is 40"),
            ({"prompt": [32]}, "vocabulary"),
            ({"prompt": "a", "logprobs": 4}, "--max-logprobs 3"),
            ({"prompt": "a", "priority": 1}, "--scheduling-policy priority"),
            ({"prompt": "a", "logit_bias": {"99": 1}}, "logit_bias"),
            ({"prompt": ["a"] * 2000}, "more sequences than the queue holds"),
        ):
            reply = server.post("/v1/completions", **body)
            assert reply.status_code == 400, reply.text
            assert part in reply.json()["error"]["message"]


def test_a_full_queue_is_refused_and_counted() -> None:
    with serving(deploy(max_num_seqs=1, max_waiting=2)) as server:

        async def main() -> list[int]:
            body = {"prompt": "abc", "max_tokens": 30, **GREEDY}
            async with httpx.AsyncClient(base_url=server.url, timeout=20) as client:
                replies = await asyncio.gather(
                    *(client.post("/v1/completions", json=body) for _ in range(16))
                )
            return [reply.status_code for reply in replies]

        statuses = asyncio.run(main())
        assert set(statuses) == {200, 503}
        found = samples(server)
        assert found["vllm:admission_rejections_total"] == statuses.count(503)
        assert found["vllm:request_success_total"] == statuses.count(200)


@pytest.mark.parametrize("rounds", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_many_clients_that_come_and_go_leak_nothing_and_are_all_counted(rounds: int) -> None:
    deployment = deploy(num_pages=96, max_num_seqs=16, k=4)

    async def client(http: httpx.AsyncClient, number: int) -> str:
        chance = random.Random(number)
        body = {
            "prompt": "abcdef"[: chance.randint(1, 6)],
            "max_tokens": chance.randint(1, 40),
            "stream": True,
        }
        body |= {"temperature": chance.choice([0, 0.8]), "seed": number}
        stay = chance.choice([0, 1, 3, 1000])  # chunks to read
        async with http.stream("POST", "/v1/completions", json=body) as reply:
            assert reply.status_code == 200, await reply.aread()
            last = ""
            async for line in reply.aiter_lines():
                last = line or last
                stay -= bool(line)
                if stay < 0:
                    return "left"
        return last

    async def one_after_another(first: int) -> list[str]:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            return [await client(http, number) for number in range(first, first + rounds)]

    async def storm() -> list[str]:
        ends = await asyncio.gather(*(one_after_another(at * rounds) for at in range(64)))
        return [end for some in ends for end in some]

    with serving(deployment) as server:
        ends = asyncio.run(storm())
        assert set(ends) == {"left", "data: [DONE]"}
        while server.client.get("/load").json()["server_load"]:
            pass  # the last ones that left are being noticed
        server.complete(prompt="z", max_tokens=1)  # after their aborts
        found = samples(server)
    assert found["vllm:num_requests_running"] == found["vllm:num_requests_waiting"] == 0
    assert found["vllm:request_success_total"] == len(ends) + 1
    drafted = found["vllm:spec_decode_num_draft_tokens_total"]
    accepted = found["vllm:spec_decode_num_accepted_tokens_total"]
    discarded = found["specserve:spec_decode_num_discarded_tokens_total"]
    assert accepted == found["vllm:spec_decode_num_accepted_tokens_per_pos_total"] > 0
    assert drafted > accepted + discarded  # the rest was rejected


def test_fifty_clients_that_leave_one_after_another_free_their_place_at_once() -> None:
    with serving(deploy(max_num_seqs=2, max_waiting=2, max_model_len=250)) as server:
        for _ in range(50):
            body = {"prompt": "abc", "stream": True, "max_tokens": 200, **GREEDY}
            with server.client.stream("POST", "/v1/completions", json=body) as reply:
                lines = reply.iter_lines()
                assert [next(lines)[:5] for _ in range(9)][::2] == ["data:"] * 5
        assert server.complete(max_tokens=3)["usage"]["completion_tokens"] == 3


def test_speculation_is_in_the_reply_and_in_the_metrics() -> None:
    config = {"per_request_spec_decode_metrics": "detailed"}
    with serving(deploy(config=config, detailed=True)) as server:
        reply = server.complete(prompt="abc", max_tokens=40, timings=True, **GREEDY)
        found = samples(server)
    spec = reply["metrics"]["speculative_decoding"]
    assert spec["num_draft_tokens"] == found["vllm:spec_decode_num_draft_tokens_total"]
    assert (
        spec["num_spec_steps"] == found["vllm:spec_decode_num_drafts_total"] == len(spec["per_step_drafted"])
    )
    assert reply["timings"]["draft_n"] == spec["num_draft_tokens"]
    assert reply["timings"]["draft_n_accepted"] == spec["num_accepted_draft_tokens"]
    assert found["vllm:generation_tokens_total"] == 40


def test_without_statistics_only_http_is_counted() -> None:
    with serving(deploy(config={"disable_log_stats": True})) as server:
        server.complete(prompt="abc")
        assert not any(name.startswith("vllm:") for name in samples(server))
        assert samples(server)["http_requests_total"] == 1


def test_names_and_root_come_from_the_configuration() -> None:
    with serving(deploy(config={"served_model_name": ["a", "b"]})) as server:
        models = server.client.get("/v1/models").json()["data"]
        assert [(model["id"], model["root"]) for model in models] == [("a", "stub"), ("b", "stub")]
        assert server.complete(prompt="a", model="b")["model"] == "b"


def test_a_chat_template_is_given_or_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "template.jinja"
    path.write_text("{{ messages[0].content }}")
    for template in (str(path), "{{ messages[0].content }}"):
        with serving(deploy(), chat_template=template) as server:
            reply = server.post("/tokenize", messages=[{"role": "user", "content": "abc"}])
            assert reply.json()["tokens"] == [0, 1, 2]
    with pytest.raises(ConfigError, match="chat_template"):
        assemble(deploy(), ServerConfig(chat_template=str(tmp_path / "none")), ENVIRONMENT)


def test_statistics_are_logged_while_there_is_traffic(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assembly = assemble(deploy(), free_port(), Environment(log_stats_interval=1e-9))
    with running(assembly.app, assembly.bridge, free_port(), deploy().engine) as server:
        server.complete(prompt="abc", max_tokens=30, **GREEDY)
        assert assembly.recorder is not None
        assembly.recorder.log_due_lines()
    assert "Engine 000: Avg prompt throughput" in caplog.text
    assert "SpecDecoding metrics: Mean acceptance length" in caplog.text
    assert "draft acceptance rate = " in caplog.text


LOSSY = {"method": "ngram", "num_speculative_tokens": 4, "rejection_sample_method": "fly"}


def test_a_lossy_rule_marks_each_reply_each_chunk_and_the_metrics() -> None:
    with serving(deploy(config={"speculative_config": LOSSY})) as server:
        assert server.complete(prompt="abc", max_tokens=9, **GREEDY)["lossy_rule"] == "fly"
        body = {"prompt": "abc", "max_tokens": 9, "stream": True, **GREEDY}
        lines = server.client.post("/v1/completions", json=body).text.split("\n\n")
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        assert chunks
        assert all(chunk["lossy_rule"] == "fly" for chunk in chunks)
        text = server.client.get("/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("vllm:spec_decode_num_drafts_total")]
    assert len(lines) == 1
    assert 'lossy_rule="fly"' in lines[0]


def test_a_lossless_rule_marks_nothing() -> None:
    with serving(deploy()) as server:
        assert "lossy_rule" not in server.complete(prompt="abc", max_tokens=9, **GREEDY)
        assert "lossy_rule" not in server.client.get("/metrics").text
