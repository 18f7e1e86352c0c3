"""Folders in Hugging Face's layout, against transformers reading the same folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import AutoTokenizer

from specserve.errors import ModelError
from specserve.text.parts import set_frame
from specserve.text.tokenizer import Tokenizer
from tests.support.vocabularies import CORPUS, NAMED, byte_level_backend, sentencepiece_backend

TEXTS = [*CORPUS, "", "  two spaces", "<|begin|>the<|end|> end", "x<s>hello</s> world", "123\n\n 456"]
CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", **NAMED}


def write(
    path: Path, backend: tokenizers.Tokenizer | None = None, config: dict[str, Any] | None = None
) -> Path:
    backend = byte_level_backend() if backend is None else backend
    backend.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(CONFIG if config is None else config))
    return path


def framed(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    set_frame(backend, "<|begin|>", "<|end|>")
    return backend


@pytest.mark.parametrize(
    ("backend", "config"),
    [
        (byte_level_backend(), CONFIG),
        (framed(byte_level_backend()), CONFIG),
        (framed(byte_level_backend()), CONFIG | {"add_bos_token": False}),
        (byte_level_backend(), CONFIG | {"bos_token": None, "add_bos_token": True}),
        (byte_level_backend(), CONFIG | {"bos_token": {"__type": "AddedToken", "content": "<|begin|>"}}),
        (sentencepiece_backend(), CONFIG | {"bos_token": "<s>", "eos_token": "</s>"}),
    ],
)
def test_ids_and_texts_equal_those_of_transformers(
    tmp_path: Path, backend: tokenizers.Tokenizer, config: dict[str, Any]
) -> None:
    ours = Tokenizer.load(write(tmp_path, backend, config))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert (ours.bos_token_id, ours.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id)
    assert ours.vocab_size == len(theirs)
    assert dict(ours.named_tokens) == dict(theirs.special_tokens_map)
    for text in TEXTS:
        for special in (True, False):
            ids = ours.encode(text, add_special_tokens=special)
            assert ids == theirs.encode(text, add_special_tokens=special)
            assert ours.decode(ids, skip_special_tokens=special) == theirs.decode(
                ids, skip_special_tokens=special
            )


def test_truncation_and_padding_of_the_file_do_not_apply(tmp_path: Path) -> None:
    backend = byte_level_backend()
    backend.enable_truncation(2)
    backend.enable_padding(length=50)
    assert len(Tokenizer.load(write(tmp_path, backend)).encode("the quick brown fox")) > 2


def test_tokens_that_only_the_configuration_declares_are_added(tmp_path: Path) -> None:
    declared = {"320": {"content": "<|tool|>", "special": True}, "321": {"content": "<think>"}}
    ours = Tokenizer.load(write(tmp_path, config=CONFIG | {"added_tokens_decoder": declared}))
    assert ours.encode("<think>the<|tool|>")[::2] == [321, 320]
    assert ours.decode([321, 320]) == "<think>"
    assert ours.all_special_ids == {0, 1, 320}


def test_a_named_token_is_special_even_if_the_file_forgot(tmp_path: Path) -> None:
    ours = Tokenizer.load(write(tmp_path, config=CONFIG | {"eos_token": "the"}))
    assert ours.eos_token_id in ours.all_special_ids
    assert ours.decode([ours.eos_token_id, 0]) == ""


def test_special_tokens_map_fills_what_the_configuration_lacks(tmp_path: Path) -> None:
    write(tmp_path, config={"bos_token": "<|end|>"})
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(NAMED))
    ours = Tokenizer.load(tmp_path)
    assert (ours.bos_token_id, ours.eos_token_id) == (1, 1)


@pytest.mark.parametrize(
    ("config", "files", "expected"),
    [
        ({}, {}, None),
        ({"chat_template": "from config"}, {}, "from config"),
        (
            {"chat_template": [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]},
            {},
            "yes",
        ),
        ({"chat_template": [{"name": "rag", "template": "no"}]}, {}, None),
        ({"chat_template": "no"}, {"chat_template.json": '{"chat_template": "from json"}'}, "from json"),
        ({"chat_template": "no"}, {"chat_template.jinja": "from file"}, "from file"),
    ],
)
def test_where_the_chat_template_comes_from(
    tmp_path: Path, config: dict[str, Any], files: dict[str, str], expected: str | None
) -> None:
    write(tmp_path, config=CONFIG | config)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert Tokenizer.load(tmp_path).chat_template == expected


def test_a_folder_without_tokenizer_json_goes_through_transformers(tmp_path: Path) -> None:
    backend = byte_level_backend()
    backend.model.save(str(tmp_path))
    config = {"tokenizer_class": "GPT2Tokenizer", "unk_token": None, **NAMED}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "chat_template.jinja").write_text("hello")
    ours = Tokenizer.load(tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    assert ours.encode("the quick fox", add_special_tokens=False) == backend.encode("the quick fox").ids
    assert (ours.eos_token_id, ours.chat_template) == (1, "hello")


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer\.json, and transformers cannot load"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", "{", r"tokenizer_config\.json: not valid JSON"),
        ("tokenizer_config.json", "[]", r"tokenizer_config\.json: expected a JSON object, found list"),
        ("tokenizer.json", '{"version": "1.0"}', r"tokenizer\.json: not a tokenizer this version"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    write(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match=message):
        Tokenizer.load(tmp_path)
