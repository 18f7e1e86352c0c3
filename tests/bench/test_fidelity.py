"""The measure is the formula, float32 against itself is exact, and rounding is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import log
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, PreTrainedModel

from specserve.bench.fidelity import (
    Fidelity,
    Sample,
    answer,
    answer_logits,
    compare,
    load_reference,
    load_variant,
    measure,
    parse_variant,
    read_prompts,
    reference_logits,
    run,
    summarise,
)
from specserve.errors import ConfigError
from specserve.llm import LLM
from tests.support.checkpoints import SIZES, oracle_logits, random_model
from tests.support.native import library
from tests.support.vocabularies import CORPUS, NAMED, byte_level_backend

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture(scope="module")
def oracle() -> PreTrainedModel:
    return random_model(LlamaConfig(**{**SIZES, "vocab_size": 320}))


@pytest.fixture(scope="module")
def folder(oracle: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tiny")
    oracle.save_pretrained(path)
    byte_level_backend().save(str(path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, **NAMED}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return str(path)


@pytest.fixture(scope="module")
def reference(folder: str) -> LLM:
    library()
    return load_reference(folder, num_threads=1)


@pytest.fixture(scope="module")
def samples(reference: LLM) -> list[Sample]:
    return answer(reference, CORPUS, 20, 8)


@pytest.fixture(scope="module")
def measured(folder: str, reference: LLM, samples: list[Sample]) -> Callable[[str], Fidelity]:
    targets = reference_logits(reference.deployment, samples)

    def of(name: str) -> Fidelity:
        other = load_variant(folder, parse_variant(name), samples, num_threads=1)
        return measure(targets, (answer_logits(other, sample) for sample in samples))

    return of


def test_a_pair_of_distributions_has_the_divergence_computed_by_hand() -> None:
    p, q = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[0.25, 0.25, 0.5]])
    kl, agrees = compare(p.log() + 3.0, q.log() - 5.0)  # a constant added to logits means nothing
    assert kl.item() == pytest.approx(log(2) / 2 - log(2) / 4, abs=1e-7)
    assert not agrees.item()
    swapped, _ = compare(p.log(), torch.tensor([[0.5, 0.4, 0.1]]).log())
    assert swapped.item() == pytest.approx(0.25 * log(0.25 / 0.4) + 0.25 * log(0.25 / 0.1), abs=1e-7)


def test_a_summary_is_over_all_rows_of_all_parts() -> None:
    first = (torch.tensor([1.0, 0.0, 0.0]), torch.tensor([False, True, True]))
    found = summarise([first, (torch.zeros(1), torch.tensor([True]))])
    assert (found.num_tokens, found.mean_kl, found.p99_kl, found.top1) == (4, 0.25, 1.0, 0.75)


def test_float32_against_itself_is_exact(measured: Callable[[str], Fidelity]) -> None:
    assert measured("float32") == Fidelity(num_tokens=20, mean_kl=0.0, p99_kl=0.0, top1=1.0)


def test_the_coarser_the_farther(measured: Callable[[str], Fidelity]) -> None:
    bfloat16, int8, int4 = (measured(name).mean_kl for name in ("bfloat16", "int8", "int4"))
    assert 0 < bfloat16 < int4
    assert 0 < int8 < int4


def test_logits_are_those_the_answer_is_drawn_from(
    oracle: PreTrainedModel, reference: LLM, samples: list[Sample]
) -> None:
    for sample in samples:
        rows = torch.cat(list(answer_logits(reference.deployment, sample)))
        expected = oracle_logits(oracle, (sample.prompt + sample.answer)[:-1])[len(sample.prompt) - 1 :]
        torch.testing.assert_close(rows, expected, atol=1e-4, rtol=0)
        assert rows.argmax(-1).tolist() == sample.answer  # greedy ones


def test_chunks_do_not_matter(folder: str, reference: LLM, samples: list[Sample]) -> None:
    chunked = load_reference(folder, num_threads=1, max_num_batched_tokens=5)
    for sample in samples:
        whole, pieces = (list(answer_logits(llm.deployment, sample)) for llm in (reference, chunked))
        assert len(pieces) > len(whole)
        assert torch.equal(torch.cat(whole), torch.cat(pieces))


def test_answers_have_as_many_tokens_as_asked_for(reference: LLM, samples: list[Sample]) -> None:
    lengths = [len(sample.answer) for sample in samples]
    assert sum(lengths) == 20
    assert max(lengths) == 8
    longer = answer(reference, CORPUS, 24, 8)
    assert longer[: len(samples) - 1] == samples[:-1]
    with pytest.raises(ConfigError, match="num_tokens=99: the answers to all 1 prompts have 8; ask"):
        answer(reference, CORPUS[:1], 99, 8)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("auto", {"dtype": "auto", "activation_bits": None, "kv_cache_dtype": "auto"}),
        ("int8:8", {"quantization": "int8", "activation_bits": 8, "kv_cache_dtype": "auto"}),
        ("auto::float32", {"dtype": "auto", "activation_bits": None, "kv_cache_dtype": "float32"}),
    ],
)
def test_a_class_is_written_shortly(text: str, options: dict[str, object]) -> None:
    assert parse_variant(text).options == options
    assert str(parse_variant(text)) == text


@pytest.mark.parametrize("text", ["", "int7", "int8:fine", "auto:7", "int8:8:float16:more"])
def test_a_class_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"classes: '{text}' is not CLASS\[:BITS\[:CACHE\]\], CLASS in"):
        parse_variant(text)


def test_prompts_are_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "b", "category": "x"}\n')
    assert read_prompts(file) == ["a", "b"]
    file.write_text('{"prompt": "a"}\n{"turns": ["b"]}\n')
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match=r'prompts\.jsonl:2 is no JSON object with a "prompt"'):
        read_prompts(file)


def test_the_command_prints_and_writes_what_it_measured(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library()
    prompts, file = tmp_path / "prompts.jsonl", tmp_path / "figures.json"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in CORPUS))
    limits = {"num_tokens": 12, "output_len": 6, "num_threads": 1}
    run({"model": folder, "dataset_path": str(prompts), "classes": ["float32"], "json": str(file), **limits})
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures == json.loads(file.read_text())
    [result] = figures["results"]
    assert {name: result[name] for name in ("class", "num_tokens", "mean_kl", "top1")} == {
        "class": "float32",
        "num_tokens": 12,
        "mean_kl": 0.0,
        "top1": 1.0,
    }
