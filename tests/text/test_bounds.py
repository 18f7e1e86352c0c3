"""How much text one token stands for: against tokenising, and where nothing bounds it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, models, normalizers, pre_tokenizers

from specserve.text.bounds import Reach, reach
from specserve.text.pieces import BYTE_ALPHABET
from tests.support.vocabularies import byte_level_backend, sentencepiece_backend

Backend = tokenizers.Tokenizer


def composing() -> Backend:
    """Three marks and a letter become one character, which is one token."""
    backend = byte_level_backend()
    backend.normalizer = normalizers.NFC()
    backend.add_tokens([tokenizers.AddedToken("\u1f82", normalized=True)])
    return backend


def without(*lost: int, unk_token: str | None = None) -> Backend:
    """Bytes that no token stands for, as vocabularies from filtered texts have them."""
    letters = {letter: byte for letter, byte in BYTE_ALPHABET.items() if byte not in lost}
    backend = Backend(models.BPE(letters, [], unk_token=unk_token))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_tokens(["abcdefgh"])
    return backend


BACKENDS: dict[str, Backend] = {
    "byte level": byte_level_backend(),
    "composing": composing(),
    "without controls": without(4, 6, 0xF1, 0xFF),
    "sentencepiece": sentencepiece_backend(),
    "without prefix": sentencepiece_backend(prefix=False),
}
TEXTS = st.one_of(
    st.text(max_size=20),
    st.text(
        st.sampled_from("the quick<|begin|>\u03b1\u0313\u0300\u0345 你🙂\x04\x06\U00040000"), max_size=20
    ),
    st.lists(st.sampled_from(["<|begin|>", "<s>", "hello", " world", "\u03b1\u0313\u0300\u0345"])).map(
        "".join
    ),
)


@pytest.mark.parametrize("name", BACKENDS)
@given(text=TEXTS)
def test_no_text_has_fewer_tokens_than_its_length_tells(name: str, text: str) -> None:
    backend = BACKENDS[name]
    found = reach(backend)
    assert found is not None
    assert not found.surely_exceeds(text, len(backend.encode(text).ids))


def test_the_bound_is_reached() -> None:
    backend = byte_level_backend()
    assert reach(backend) == Reach(len("<|begin|>"))
    assert len(backend.encode("<|begin|>" * 7).ids) == 7
    assert reach(sentencepiece_backend()) == Reach(max(len("▁hello"), len("<0x00>")))


def test_composition_makes_one_token_of_four_characters() -> None:
    backend = composing()
    assert len(backend.encode("\u03b1\u0313\u0300\u0345").ids) == 1
    assert reach(backend) == Reach(4 * len("<|begin|>"))


def test_an_unknown_token_that_is_never_needed_does_no_harm() -> None:
    assert reach(without(0xFF, unk_token="a")) == Reach(len("abcdefgh"))


def test_characters_without_a_token_do_not_count() -> None:
    found = reach(without(4, 6))
    assert found == Reach(len("abcdefgh"), frozenset("\x04\x06"))
    text = "abcdefgh\x04" * 3 + "\x06" * 100
    assert not found.surely_exceeds(text, 3)
    assert found.surely_exceeds(text + "a", 3)


def losing_and_replacing() -> Backend:
    backend = without(4)
    backend.normalizer = normalizers.Replace("a", "\x04")
    return backend


def with_normalizer(normalizer: normalizers.Normalizer) -> Backend:
    backend = byte_level_backend()
    backend.normalizer = normalizer
    return backend


def with_words(pre_tokenizer: pre_tokenizers.PreTokenizer) -> Backend:
    backend = byte_level_backend()
    last = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizer, last])
    return backend


def with_greedy_token() -> Backend:
    backend = byte_level_backend()
    backend.add_tokens([tokenizers.AddedToken("<mask>", lstrip=True)])
    return backend


def without_letters() -> Backend:
    """Unknown characters are dropped."""
    return Backend(models.BPE({"a": 0}, []))


def with_fused_unknowns() -> Backend:
    return Backend(models.BPE({"a": 0, "?": 1}, [], unk_token="?", fuse_unk=True))


def with_word_pieces() -> Backend:
    return Backend(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_normalizer(normalizers.Strip()),
        lambda: with_normalizer(normalizers.Replace("  ", " ")),
        lambda: with_normalizer(normalizers.Replace(Regex(" +"), " ")),
        lambda: with_normalizer(normalizers.Sequence([normalizers.NFC(), normalizers.StripAccents()])),
        lambda: with_words(pre_tokenizers.WhitespaceSplit()),
        lambda: with_words(pre_tokenizers.Split(" ", "removed")),
        losing_and_replacing,
        lambda: without(ord("a")),
        lambda: without(4, unk_token="a"),
        lambda: without(0x80),
        with_greedy_token,
        without_letters,
        with_fused_unknowns,
        with_word_pieces,
    ],
)
def test_where_characters_may_vanish_nothing_is_said(make: Callable[[], Backend]) -> None:
    assert reach(make()) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_normalizer(normalizers.Replace("a", "bb")),
        lambda: with_words(pre_tokenizers.Split(" ", "isolated")),
        lambda: with_words(pre_tokenizers.Punctuation()),
        lambda: with_words(pre_tokenizers.Digits()),
    ],
)
def test_cutting_and_adding_lose_nothing(make: Callable[[], Backend]) -> None:
    assert reach(make()) == Reach(len("<|begin|>"))
