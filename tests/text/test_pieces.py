"""Bytes of pieces, and which decoders are read that way."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from specserve.errors import ModelError
from specserve.text.pieces import BYTE_ALPHABET, byte_level, read_decoder, sentencepiece, strip_leading

FUSING = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def backend_with(decoder: decoders.Decoder | None) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    if decoder is not None:
        backend.decoder = decoder
    return backend


def test_the_byte_alphabet_spells_each_byte_once() -> None:
    assert sorted(BYTE_ALPHABET.values()) == list(range(256))
    assert set(BYTE_ALPHABET) == set(pre_tokenizers.ByteLevel.alphabet())


def test_byte_level_pieces_are_bytes() -> None:
    assert byte_level("Ġhello") == b" hello"
    assert byte_level("ä½") == "你".encode()[:2]
    assert byte_level("<|end|>") == b"<|end|>"


def test_a_piece_outside_the_byte_alphabet_is_its_own_text() -> None:
    assert byte_level("<｜end of text｜>") == "<｜end of text｜>".encode()


def test_sentencepiece_pieces_are_text_or_one_byte() -> None:
    to_bytes = sentencepiece((("▁", " "),), byte_fallback=True)
    assert to_bytes("▁hello▁") == b" hello "
    assert to_bytes("<0xE4>") == b"\xe4"
    assert to_bytes("<0xE4>x") == b"<0xE4>x"
    assert sentencepiece((("▁", " "),), byte_fallback=False)("<0xE4>") == b"<0xE4>"


def test_only_leading_spaces_are_stripped_and_no_more_than_asked() -> None:
    assert strip_leading(b"  a ", 1) == b" a "
    assert strip_leading(b" a", 3) == b"a"
    assert strip_leading(b"a b", 1) == b"a b"
    assert strip_leading(b"", 1) == b""


@pytest.mark.parametrize(
    ("decoder", "leading_spaces"),
    [
        (decoders.ByteLevel(), 0),
        (decoders.Sequence([decoders.ByteLevel()]), 0),
        (decoders.Sequence(FUSING), 0),
        (decoders.Sequence([*FUSING, decoders.Strip(" ", 1, 0)]), 1),
        (decoders.Metaspace("▁", "always"), 1),
        (decoders.Metaspace("▁", "never"), 0),
    ],
)
def test_known_decoders_are_read(decoder: decoders.Decoder, leading_spaces: int) -> None:
    assert read_decoder(backend_with(decoder), "x").leading_spaces == leading_spaces


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.WordPiece(),
        decoders.Sequence([*FUSING, decoders.Strip(" ", 1, 1)]),
        decoders.Sequence([decoders.Replace(tokenizers.Regex("▁+"), " "), decoders.ByteFallback()]),
    ],
)
def test_other_decoders_are_refused_by_name(decoder: decoders.Decoder | None) -> None:
    with pytest.raises(ModelError, match=r"folder/x: cannot decode with"):
        read_decoder(backend_with(decoder), "folder/x")
