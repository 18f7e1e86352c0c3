"""`bench serve` from its flags to its block and its file, against a script and against a server."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from specserve.bench import serve
from specserve.bench.serve import measure, read_run
from specserve.errors import ConfigError
from tests.support.scripted_wire import ScriptedWire, steady
from tests.support.server import serving
from tests.support.virtual_time import run_virtually

METRICS = """\
vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}
vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {tokens}
vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {accepted}
"""


@pytest.fixture
def questions(tmp_path: Path) -> str:
    path = tmp_path / "question.jsonl"
    lines = [{"question_id": n, "category": "ab"[n % 2], "turns": [f"q{n}"]} for n in range(4)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


class Here:
    """`run` with a scripted wire, on virtual time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wire: ScriptedWire) -> None:
        monkeypatch.setattr(serve, "HttpWire", lambda *_, **__: wire)
        monkeypatch.setattr(serve.asyncio, "run", run_virtually)
        self.wire = wire

    def run(self, path: str, **values: Any) -> None:
        given = {"dataset_name": "spec_bench", "dataset_path": path, "num_prompts": "-1"}
        serve.run({"base_url": "http://scripted", **given, **values})


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    looks = [(0, 0, 0), (1, 5, 5), (11, 55, 20)]
    metrics = [METRICS.format(drafts=d, tokens=t, accepted=a) for d, t, a in looks]
    return Here(monkeypatch, ScriptedWire(lambda *_: steady(10, per_chunk=3), metrics))


BLOCK = """\
============ Serving Benchmark Result ============
Successful requests:                     4
Failed requests:                         0
Maximum request concurrency:             1
Benchmark duration (s):                  2.60
Total input tokens:                      40
Total generated tokens:                  120
Request throughput (req/s):              1.54
Output token throughput (tok/s):         46.15
Peak output token throughput (tok/s):    51.00
Peak concurrent requests:                1.00
Total token throughput (tok/s):          61.54
---------------Time to First Token----------------
Mean TTFT (ms):                          200.00
Median TTFT (ms):                        200.00
P50 TTFT (ms):                           200.00
P99 TTFT (ms):                           200.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          15.52
Median TPOT (ms):                        15.52
P50 TPOT (ms):                           15.52
P99 TPOT (ms):                           15.52
---------Inter-token Latency (per chunk)----------
Mean ITL (ms):                           50.00
Median ITL (ms):                         50.00
P50 ITL (ms):                            50.00
P99 ITL (ms):                            50.00
---------------Speculative Decoding---------------
Acceptance rate (%):                     30.00
Acceptance length:                       2.50
Drafts:                                  10
Draft tokens:                            50
Accepted tokens:                         15
Per-position acceptance (%):
  Position 0:                            150.00
==================================================
"""


def test_the_block_is_vllms(here: Here, questions: str, capsys: pytest.CaptureFixture[str]) -> None:
    here.run(questions, max_concurrency=1, metric_percentiles="50,99")
    text = capsys.readouterr().out
    assert text.startswith(BLOCK)
    table = text[len(BLOCK) :]
    for name in ("a", "b", "all"):
        assert f"\n  {name} " in table


def test_the_guides_command_asks_chats_once(here: Here, questions: str) -> None:
    here.run(
        questions, backend="openai-chat", endpoint="/v1/chat/completions", model="m", max_concurrency="1"
    )
    assert [call.path for call in here.wire.calls] == ["/v1/chat/completions"] * 4
    bodies = [dict(call.body or {}) for call in here.wire.calls]
    assert sorted(body["messages"][0]["content"][0]["text"] for body in bodies) == ["q0", "q1", "q2", "q3"]
    text = bodies[0]["messages"][0]["content"][0]["text"]
    assert bodies[0] == {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
        "max_completion_tokens": 256,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    names = [call.headers["X-Request-Id"] for call in here.wire.calls]
    assert len(set(names)) == 4
    assert all(name.startswith("bench-") for name in names)


def test_a_completion_has_vllms_fields_and_what_was_given(here: Here, questions: str) -> None:
    given = {"temperature": 0, "top_k": "5", "ignore_eos": True, "extra_body": '{"seed": 1}'}
    here.run(questions, output_len="7", logprobs="2", served_model_name="n", **given)
    body = dict(here.wire.calls[0].body or {})
    assert body.pop("prompt") in {"q0", "q1", "q2", "q3"}
    assert body == {
        "model": "n",
        "repetition_penalty": 1.0,
        "max_tokens": 7,
        "logprobs": 2,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "top_k": 5,
        "ignore_eos": True,
        "seed": 1,
    }


def test_the_file_has_vllms_keys(here: Here, questions: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    here.run(
        questions,
        max_concurrency=2,
        json=str(file),
        goodput=["ttft:250"],
        save_detailed=True,
        metadata=["commit=abc"],
        request_rate="10",
    )
    found = json.loads(file.read_text())
    assert (found["model_id"], found["num_prompts"], found["commit"]) == ("scripted", 4, "abc")
    assert (found["request_rate"], found["burstiness"], found["max_concurrency"]) == (10.0, 1.0, 2)
    assert found["request_goodput"] == found["request_throughput"] > 0
    assert found["spec_decode_acceptance_length"] == 2.5
    assert found["acceptance_per_position"] == [1.5]
    assert set(found["categories"]) == {"a", "b"}
    assert found["config"]["dataset_name"] == "spec_bench"
    assert "cpu" in found["config"]
    assert len(found["output_sha256"]) == 64
    lists = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "errors")
    assert [len(found[name]) for name in lists] == [4] * len(lists)
    assert found["generated_texts"][0].startswith("0 1 2 ")


def test_results_are_saved_under_a_name_that_says_what_they_are(
    here: Here, questions: str, tmp_path: Path
) -> None:
    here.run(questions, save_result=True, result_dir=str(tmp_path / "new"), max_concurrency=1, label="x")
    [file] = (tmp_path / "new").iterdir()
    assert file.name.startswith("x-infqps-concurrency1-scripted-2")
    assert "generated_texts" not in json.loads(file.read_text())
    for _ in range(2):
        here.run(questions, append_result=True, result_dir=str(tmp_path), result_filename="all.jsonl")
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 2


def test_warm_ups_are_not_measured(here: Here, questions: str, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    here.run(questions, num_warmups="3", ready_check_timeout_sec="5", json=str(file))
    assert len(here.wire.calls) == 1 + 3 + 4
    assert json.loads(file.read_text())["completed"] == 4


def test_what_must_be_known_is_warned_about(
    here: Here, questions: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        here.run(questions, quantization="int8")
    assert "temperature is not given" in caplog.text
    assert "no chat template goes around prompts" in caplog.text
    assert "quantization has no effect: the server at the given address has its own" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        here.run(questions, temperature="0", backend="openai-chat")
    assert caplog.text == ""


def test_nothing_but_failures_is_an_error(
    here: Here, questions: str, caplog: pytest.LogCaptureFixture
) -> None:
    here.wire.script = lambda number, _: steady(1, status=500 if number else 200)
    here.run(questions)
    assert "A request failed: 500: no" in caplog.text
    here.wire.script = lambda *_: steady(1, status=500)
    with pytest.raises(ConfigError, match="All 4 requests failed, the first one so: 500: no"):
        here.run(questions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"request_rate": "0"}, "request_rate must be above 0"),
        ({"burstiness": 0}, "burstiness must be above 0"),
        ({"ramp_up_strategy": "linear"}, "ramp_up_start_rps must be above 0 with ramp_up_strategy"),
        ({"ramp_up_strategy": "linear", "request_rate": "3"}, "exclude each other"),
        ({"metric_percentiles": "99,x"}, "metric_percentiles must be numbers"),
        ({"metric_percentiles": "101"}, "metric_percentiles must be numbers"),
        ({"percentile_metrics": "ttft,tpt"}, "percentile_metrics: 'tpt' is none of ttft"),
        ({"goodput": ["ttft"]}, "goodput must be TIME:MILLISECONDS"),
        ({"goodput": ["x:1"]}, "goodput: 'x' is none of ttft"),
        ({"header": ["x"]}, "header must be KEY=VALUE"),
        ({"metadata": ["x"]}, "metadata must be KEY=VALUE"),
        ({"launch": True, "port": "1"}, "launch starts a server of its own"),
        ({"json": "/no/such/folder/f"}, "lies in no folder"),
    ],
)
def test_mistakes_are_named(here: Here, questions: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        here.run(questions, **options)
    assert here.wire.calls == []


def test_a_server_that_is_not_there_is_said(questions: str) -> None:
    with pytest.raises(ConfigError, match=r"Cannot reach .*start `specserve serve`, give the base_url"):
        serve.run({"base_url": "http://127.0.0.1:9", "dataset_name": "spec_bench", "dataset_path": questions})


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_a_real_server_is_understood(backend: str, questions: str, tmp_path: Path) -> None:
    """No times are compared here; what the server counts itself must agree with what came."""
    file = tmp_path / "figures.json"
    with serving() as server:
        port = urlsplit(server.url).port
        flags = {"backend": backend, "port": port, "output_len": "9", "num_prompts": "5", "json": str(file)}
        serve.run({"dataset_name": "spec_bench", "dataset_path": questions, "save_detailed": True, **flags})
        prompts = [request.prompt_token_ids for request in server.engine.requests][1:]  # the first warms up
    found = json.loads(file.read_text())
    assert (found["completed"], found["failed"], found["errors"]) == (5, 0, [""] * 5)
    assert found["model_id"] == "fake"
    assert found["output_lens"] == [9] * 5
    assert found["input_lens"] == [len(prompt) for prompt in prompts]
    assert set(found["generated_texts"]) == {"Grüße! "}
    assert [len(itls) for itls in found["itls"]] == [2] * 5  # three tokens per chunk
    texts = {bytes(prompt).decode() for prompt in prompts}
    expected = {f"user: q{n}\n> " if backend == "openai-chat" else f"q{n}" for n in range(4)}
    assert texts == expected


def test_our_own_server_is_asked_for_each_replys_acceptance(here: Here, questions: str) -> None:
    ours = "specserve:spec_decode_num_trimmed_tokens_total 0\n"
    here.wire.metrics = [ours]
    given = {"dataset_name": "spec_bench", "dataset_path": questions, "num_prompts": 2}
    run_virtually(measure(here.wire, read_run(given)))
    assert [(call.body or {})["speculation"] for call in here.wire.calls] == [{}, {}]
