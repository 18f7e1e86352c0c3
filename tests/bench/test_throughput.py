"""`bench latency` and `bench throughput` from their flags to their files, on a tiny model."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from specserve.bench import latency, offline_figures, throughput
from specserve.bench.answers import Answer
from specserve.bench.dataset import Question
from specserve.bench.latency import latency_figures, latency_lines
from specserve.bench.offline import OfflineRun
from specserve.bench.offline_figures import Pair
from specserve.bench.throughput import decode_speed_up
from specserve.errors import ConfigError
from specserve.ops.probe import Probes
from tests.support.native import library
from tests.support.tiny import write_tiny

SPECULATION = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}
ENGINE: dict[str, Any] = {"num_threads": 1, "kv_cache_memory_bytes": "4M", "max_model_len": 120}
SMALL_BATCH = {
    "batch_size": "2",
    "input_len": "9",
    "output_len": "12",
    "num_iters": "2",
    "num_iters_warmup": "1",
}


@pytest.fixture(autouse=True)
def _small_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_figures, "Probes", lambda pool: Probes(pool, 2**20))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def questions(tmp_path: Path) -> str:
    path = tmp_path / "q.jsonl"
    lines = [{"turns": [f"question {n} {n} {n}"], "category": "ab"[n % 2]} for n in range(4)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_latency_tells_rounds_and_factors(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library()
    file = tmp_path / "f.json"
    flags = {"model": model, "speculative_config": SPECULATION, "json": str(file), **ENGINE, **SMALL_BATCH}
    latency.run({**flags, "temperature": "0"})
    found = json.loads(file.read_text())
    assert len(found["latencies"]) == len(found["baseline_latencies"]) == 2
    assert found["avg_latency"] == pytest.approx(sum(found["latencies"]) / 2)
    assert list(found["percentiles"]) == ["10", "25", "50", "75", "90", "99"]
    assert found["speed_up"] == pytest.approx(sum(found["baseline_latencies"]) / sum(found["latencies"]))
    assert found["text_kept"] == 1.0
    assert {"speed_up", "acceptance", "verification_cost"} <= set(found["decomposition"])
    assert found["weight_class"] == "float32"
    assert (found["read_gb_per_s"] > 0, found["roofline_share"] > 0) == (True, True)
    for name in ("step_ms", "draft_ms", "verify_ms", "host_ms"):
        assert found[name] >= 0
    assert "2" in found["baseline"]["rows"]  # one row of each
    assert len(found["output_sha256"]) == 64
    assert found["config"]["speculative_config"] == SPECULATION
    assert found["config"]["enable_prefix_caching"] is False
    text = capsys.readouterr().out
    assert text.startswith(f"Avg latency: {found['avg_latency']} seconds\n10% percentile latency: ")
    assert "Answers that are the same without speculation: 100 %" in text


def test_latency_without_speculation_has_no_baseline(model: str, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    latency.run({"model": model, "output_json": str(file), **ENGINE, **SMALL_BATCH, "n": "2"})
    found = json.loads(file.read_text())
    assert not {"baseline", "decomposition", "speed_up", "text_kept"} & set(found)
    assert found["tokens_per_step"] == 1.0


def test_throughput_tells_rates_by_category(
    model: str, questions: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.json"
    data = {"dataset_name": "spec_bench", "dataset_path": questions, "num_prompts": "-1", "output_len": "10"}
    flags = {"model": model, "speculative_config": SPECULATION, "baseline": True, "num_warmups": "1"}
    throughput.run({**data, **flags, **ENGINE, "json": str(file), "ignore_eos": True, "temperature": "0"})
    found = json.loads(file.read_text())
    assert (found["num_requests"], found["total_output_tokens"]) == (4, 40)
    assert found["total_num_tokens"] == found["total_input_tokens"] + 40
    assert found["tokens_per_second"] == pytest.approx(found["total_num_tokens"] / found["elapsed_time"])
    assert found["requests_per_second"] == pytest.approx(4 / found["elapsed_time"])
    assert set(found["categories"]) == {"a", "b"}
    assert found["text_kept"] == 1.0
    speed_ups = [found["categories"][name]["decode_speed_up"] for name in "ab"]
    assert min(speed_ups) <= found["decode_speed_up"] <= max(speed_ups)
    assert found["spec_decode_num_drafts"] > 0
    assert found["output_sha256_of"] == "ids"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Throughput: ")
    assert lines[0].endswith(" output tokens/s")
    assert lines[1:3] == [
        f"Total num prompt tokens:  {found['total_input_tokens']}",
        "Total num output tokens:  40",
    ]


def test_a_run_repeats_to_the_bit(model: str, questions: str, tmp_path: Path) -> None:
    """Sampled, with speculation and without, one at a time and all together."""
    digests = set()
    data = {"dataset_name": "spec_bench", "dataset_path": questions, "num_prompts": "-1", "output_len": "10"}
    for number, more in enumerate([{}, {"speculative_config": SPECULATION}, {"max_num_seqs": "1"}]):
        file = tmp_path / f"{number}.json"
        throughput.run({**data, **more, **ENGINE, "model": model, "temperature": "1", "json": str(file)})
        digests.add(json.loads(file.read_text())["output_sha256"])
    assert len(digests) == 1


def test_questions_that_do_not_fit_fail_alone(
    model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"prompt": "short"}\n' + json.dumps({"prompt": "long " * 200}) + "\n")
    data = {"dataset_name": "custom", "dataset_path": str(path), "num_prompts": "-1", "output_len": "5"}
    with caplog.at_level(logging.WARNING):
        throughput.run({**data, **ENGINE, "model": model})
    assert "1 of 2 questions failed" in caplog.text
    assert "temperature is not given" in caplog.text
    path.write_text(json.dumps({"prompt": "long " * 200}) + "\n")
    with pytest.raises(ConfigError, match="No question could be answered"):
        throughput.run({**data, **ENGINE, "model": model})
    with pytest.raises(ConfigError, match="A prompt of the batch cannot be answered"):
        latency.run({**ENGINE, "model": model, **SMALL_BATCH, "input_len": "500"})


def test_noise_with_speculation_is_warned_about(model: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        latency.run({"model": model, "speculative_config": SPECULATION, **ENGINE, **SMALL_BATCH})
    assert "Prompts here are noise, and no drafter can guess" in caplog.text


def test_the_speed_up_of_decoding_weighs_tokens_alike() -> None:
    def answer(seconds: float, num_tokens: int, error: str = "") -> Answer:
        chunks = (1.0, 1.0 + seconds)
        return Answer(Question("x", "a", 9), 0.0, chunks, chunks[-1], "", 1, num_tokens, error=error)

    own = [answer(1.0, 11), answer(2.0, 11), answer(99.0, 11, "broken"), answer(0.0, 1)]
    plain = [answer(3.0, 11), answer(6.0, 16)]
    assert decode_speed_up(own, plain) == pytest.approx((9.0 / 25) / (3.0 / 20))
    assert decode_speed_up([answer(0.0, 1)], plain) is None
    assert decode_speed_up([], []) is None


def test_latency_figures_are_of_whole_rounds() -> None:
    seconds = [1.0, 2.0, 3.0, 4.0]
    pairs = [Pair(OfflineRun(duration=s), OfflineRun(duration=2 * s)) for s in seconds]
    found = latency_figures(pairs)
    assert (found["avg_latency"], found["speed_up"]) == (2.5, 2.0)
    assert found["percentiles"]["50"] == 2.5
    assert found["percentiles"]["90"] == pytest.approx(3.7)
    assert latency_lines(found)[:2] == [
        "Avg latency: 2.5 seconds",
        f"10% percentile latency: {found['percentiles']['10']} seconds",
    ]
