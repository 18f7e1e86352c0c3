"""Questions come from every kind of file in the order, number and length that was asked for."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from random import Random
from typing import Any

import pytest

from specserve.bench.dataset import Question, load_questions, read_lines
from specserve.config.bench_serving import DATASETS, DatasetFlags
from specserve.errors import ConfigError
from tests.support.fake_engine import byte_tokenizer

SPEC_BENCH = [
    {"question_id": number, "category": "qa" if number % 3 else "rag", "turns": [f"q{number}", "more"]}
    for number in range(9)
]


def write_lines(path: Path, lines: list[Any]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def load(name: str, path: str | None, *, has_tokenizer: bool = True, **options: Any) -> list[Question]:
    flags = DatasetFlags(**{"num_prompts": -1, "dataset_name": name, "dataset_path": path, **options})
    return load_questions(flags, 0, byte_tokenizer() if has_tokenizer else None)


@pytest.fixture
def spec_bench(tmp_path: Path) -> str:
    return write_lines(tmp_path / "question.jsonl", SPEC_BENCH)


def test_spec_bench_asks_first_turns_with_their_category(spec_bench: str) -> None:
    found = load("spec_bench", spec_bench, disable_shuffle=True)
    assert [question.text for question in found] == [f"q{number}" for number in range(9)]
    assert [question.category for question in found[:4]] == ["rag", "qa", "qa", "rag"]
    assert {question.output_len for question in found} == {256}
    assert all(question.is_chat for question in found)


def test_spec_bench_is_always_shuffled_alike(spec_bench: str) -> None:
    expected = [f"q{number}" for number in range(9)]
    Random(0).shuffle(expected)
    flags = DatasetFlags(dataset_name="spec_bench", dataset_path=spec_bench, num_prompts=0)
    for seed in (0, 1):
        assert [question.text for question in load_questions(flags, seed, None)] == expected


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"num_prompts": -1}, 9),
        ({"num_prompts": 0}, 9),
        ({"num_prompts": 4}, 4),
        ({"num_prompts": 20}, 20),
        ({"num_prompts": 20, "oversample": False}, 9),
        ({"spec_bench_category": "rag"}, 3),
    ],
)
def test_as_many_as_asked_for(spec_bench: str, options: dict[str, Any], count: int) -> None:
    found = load("spec_bench", spec_bench, **options)
    assert len(found) == count
    assert found == (found[:9] * 3)[:count]


def test_answers_are_as_long_as_asked_for(spec_bench: str) -> None:
    assert load("spec_bench", spec_bench, output_len=7)[0].output_len == 7
    assert load("spec_bench", spec_bench, spec_bench_output_len=8)[0].output_len == 8


def test_custom_lines_may_bring_a_length_and_a_category(tmp_path: Path) -> None:
    lines = [{"prompt": "a", "output_tokens": 9, "category": "x"}, {"prompt": "b", "output_tokens": None}]
    path = write_lines(tmp_path / "custom.jsonl", lines)
    assert load("custom", path, disable_shuffle=True) == [Question("a", "x", 9), Question("b", "custom", 256)]
    assert load("custom", path, output_len=5)[0].output_len == 5


def test_humaneval_is_code_to_go_on_with(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "he.jsonl", [{"task_id": "HumanEval/0", "prompt": "def f():\n"}])
    assert load("humaneval", path) == [Question("def f():\n", "humaneval", 256, is_chat=False)]


def test_sharegpt_answers_are_as_long_as_the_recorded_ones(tmp_path: Path) -> None:
    turns = [("Hello there", "General"), ("no", "too short"), ("x" * 1025, "too long"), ("alone", None)]
    entries = [
        {"conversations": [{"from": "human", "value": a}, *([{"from": "gpt", "value": b}] if b else [])]}
        for a, b in turns
    ]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(entries))
    assert load("sharegpt", str(path)) == [Question("Hello there", "sharegpt", 7)]
    assert len(load("sharegpt", str(path), has_tokenizer=False)) == 3


def test_noise_is_warned_about(caplog: pytest.LogCaptureFixture, spec_bench: str) -> None:
    with caplog.at_level(logging.WARNING):
        load("spec_bench", spec_bench)
        assert not caplog.records
        load("random", None, num_prompts=1)
    assert "no drafter can guess" in caplog.text


def test_random_prompts_have_the_length_asked_for_and_differ() -> None:
    found = load("random", None, num_prompts=3, input_len=11)
    assert [len(question.ids or ()) for question in found] == [11] * 3
    assert len({question.ids for question in found}) == 3
    assert {question.output_len for question in found} == {128}
    assert found == load("random", None, num_prompts=3, input_len=11)
    [words] = load("random", None, num_prompts=1, input_len=5, has_tokenizer=False)
    assert (len(words.text.split()), words.ids) == (5, None)


def test_other_ends_of_lines_stay_in_a_text(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"prompt": "a\u2028b"}\r\n\n{"prompt": "c"}', encoding="utf-8")
    assert [line["prompt"] for line in read_lines(path, "prompt")] == ["a\u2028b", "c"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("spec_bench", '{"prompt": "a"}', r'lines:1 is no JSON object with a "turns"; give one'),
        ("spec_bench", '{"turns": []}', '"turns" must be lists of texts'),
        ("custom", '{"prompt": "a"}\n[1]', 'lines:2 is no JSON object with a "prompt"'),
        ("custom", "\n", "holds no question to ask"),
        ("sharegpt", '{"conversations": 1}', 'is no JSON list of objects with "conversations"'),
        ("sharegpt", "[]", "holds no question to ask"),
        ("humaneval", "{}", 'is no JSON object with a "prompt"'),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / "lines"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(name, str(path))


def test_what_cannot_be_asked_is_refused(spec_bench: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'maths' has no question; there are qa, rag"):
        load("spec_bench", spec_bench, spec_bench_category="maths")
    with pytest.raises(ConfigError, match="cannot be read"):
        load("custom", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="num_prompts must be at least 1 with dataset_name=random"):
        load("random", None)
    for name in DATASETS[1:]:
        with pytest.raises(ConfigError, match=f"dataset_path is missing; name the file of {name}"):
            DatasetFlags(dataset_name=name)
