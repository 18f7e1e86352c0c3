"""Ids to text and back: exact bytes, special tokens, threads."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

from specserve.errors import InvalidRequest, ModelError
from specserve.text.parts import Parts
from specserve.text.tokenizer import Tokenizer
from tests.support.vocabularies import (
    CORPUS,
    NAMED,
    byte_level_backend,
    byte_level_tokenizer,
    sentencepiece_backend,
    sentencepiece_tokenizer,
)

BYTE_LEVEL = byte_level_tokenizer()
SENTENCEPIECE = sentencepiece_tokenizer()
GEMMA_LIKE = sentencepiece_tokenizer(prefix=False)
ALL = [BYTE_LEVEL, SENTENCEPIECE, GEMMA_LIKE]
TEXTS = [*CORPUS, "", " ", "  two  spaces ", "tab\tand\nnewline\r\n", "é hello wörld", "👩‍👩‍👧 emoji", "�"]


@pytest.mark.parametrize("tokenizer", ALL)
@pytest.mark.parametrize("text", TEXTS)
def test_decoding_gives_the_text_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.lists(st.integers(0, BYTE_LEVEL.vocab_size - 1), max_size=12), st.booleans())
def test_byte_level_decoding_equals_the_library_for_any_ids(ids: list[int], skip: bool) -> None:
    expected = byte_level_backend_for_reading.decode(ids, skip_special_tokens=skip)
    assert BYTE_LEVEL.decode(ids, skip_special_tokens=skip) == expected


byte_level_backend_for_reading = byte_level_backend()


@given(st.text(st.sampled_from("helo wrd!你é🙂 \n"), max_size=12), st.booleans(), st.booleans())
def test_sentencepiece_decoding_equals_the_library(text: str, prefix: bool, skip: bool) -> None:
    backend = sentencepiece_backend(prefix)
    tokenizer = SENTENCEPIECE if prefix else GEMMA_LIKE
    ids = [1, *backend.encode(text).ids, 2]
    assert tokenizer.decode(ids, skip_special_tokens=skip) == backend.decode(ids, skip_special_tokens=skip)


def test_a_broken_run_of_byte_pieces_loses_only_the_broken_character() -> None:
    first_byte = 3
    ids = [first_byte + byte for byte in "你".encode()] + [first_byte + 0xE4]
    assert SENTENCEPIECE.decode(ids) == "你�"


@pytest.mark.parametrize("tokenizer", ALL)
def test_the_bytes_of_all_tokens_make_the_text(tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        data = b"".join(tokenizer.token_bytes(token) for token in tokenizer.encode(text))
        assert data.decode() == " " * (tokenizer.leading_spaces if text else 0) + text


def test_a_text_is_surely_longer_one_character_past_what_its_tokens_can_stand_for() -> None:
    text = "<|begin|>" * 5
    assert not BYTE_LEVEL.surely_exceeds(text, 5)
    assert BYTE_LEVEL.surely_exceeds(text + "a", 5)
    assert BYTE_LEVEL.beginning(text + "a", 5) == text
    assert BYTE_LEVEL.beginning(text, 5) == text


def test_where_nothing_bounds_a_token_no_text_is_surely_longer() -> None:
    backend = byte_level_backend()
    backend.add_tokens([AddedToken("<mask>", rstrip=True)])
    tokenizer = Tokenizer(Parts(backend, NAMED, None))
    text = "<mask>" + " " * 1000
    assert len(tokenizer.encode(text)) == 1
    assert not tokenizer.surely_exceeds(text, 1)
    assert tokenizer.beginning(text, 1) == text


def test_part_of_a_character_is_printed_as_a_replacement() -> None:
    half = SENTENCEPIECE.encode("🙂")[-1]
    assert SENTENCEPIECE.token_bytes(half) == "🙂".encode()[-1:]
    assert SENTENCEPIECE.token_text(half) == "�"


def test_special_tokens_are_skipped_on_request() -> None:
    ids = BYTE_LEVEL.encode("<|begin|>the<|end|>")
    assert ids[0] == BYTE_LEVEL.bos_token_id == 0
    assert ids[-1] == BYTE_LEVEL.eos_token_id == 1
    assert BYTE_LEVEL.all_special_ids == {0, 1}
    assert BYTE_LEVEL.decode(ids) == "the"
    assert BYTE_LEVEL.decode(ids, skip_special_tokens=False) == "<|begin|>the<|end|>"


@pytest.mark.parametrize("token_id", [-1, 10**6, 2**40])
def test_an_id_outside_the_vocabulary_has_no_text(token_id: int) -> None:
    assert BYTE_LEVEL.token_bytes(token_id) == b""
    assert BYTE_LEVEL.decode([token_id, *BYTE_LEVEL.encode("the")]) == "the"


def test_unset_tokens_are_none() -> None:
    tokenizer = Tokenizer(Parts(byte_level_backend(), {}, None))
    assert tokenizer.bos_token_id is None
    assert tokenizer.eos_token_id is None
    assert tokenizer.chat_template is None


def test_vocab_size_counts_added_tokens() -> None:
    backend = byte_level_backend()
    before = Tokenizer(Parts(backend, NAMED, None)).vocab_size
    backend.add_tokens(["<new>"])
    assert Tokenizer(Parts(backend, NAMED, None)).vocab_size == before + 1


def test_a_lone_surrogate_is_the_requests_error() -> None:
    with pytest.raises(InvalidRequest, match="surrogates"):
        BYTE_LEVEL.encode("broken \ud83d text")


def test_threads_may_encode_while_others_decode() -> None:
    tokenizer = byte_level_tokenizer()

    def round_trip(number: int) -> bool:
        text = f"{CORPUS[number % len(CORPUS)]} {number}"
        return tokenizer.decode(tokenizer.encode(text)) == text

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(round_trip, range(400)))


def test_others_run_while_a_long_text_is_encoded() -> None:
    started, ended = Event(), Event()

    def encode() -> None:
        started.set()
        BYTE_LEVEL.encode("hello wörld " * 50_000)
        ended.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # a thread that does not let go by itself runs to its end
    try:
        thread = Thread(target=encode)
        thread.start()
        started.wait()
        assert not ended.is_set()
    finally:
        sys.setswitchinterval(interval)
    thread.join()


def test_loading_from_nowhere_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent\.gguf: no such file"):
        Tokenizer.load(tmp_path / "absent.gguf")
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"weights\.bin: a tokenizer is loaded from"):
        Tokenizer.load(tmp_path / "weights.bin")
