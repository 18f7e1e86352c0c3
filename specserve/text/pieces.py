"""The bytes behind a token: how a tokenizer's decoder is read as one function per piece.

Text is the UTF-8 reading of the bytes of its tokens, one after the other. That holds for byte-level
BPE and for SentencePiece vocabularies alike, it needs no context, and so a stream decodes at a cost
per token that does not grow. Only the leading space of SentencePiece looks at more than one piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tokenizers

from specserve.errors import ModelError

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable Latin-1 as itself, the 68 others as U+0100 and up, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelling = {chr(byte): byte for byte in printable}
    return spelling | {chr(0x100 + i): byte for i, byte in enumerate(others)}


BYTE_ALPHABET = _byte_alphabet()


@dataclass(frozen=True, slots=True)
class Pieces:
    """`to_bytes` gives the exact bytes of a piece; a text loses up to `leading_spaces` at its start."""

    to_bytes: Callable[[str], bytes]
    leading_spaces: int = 0


def byte_level(piece: str) -> bytes:
    """Bytes of a byte-level BPE piece. An added token with letters outside the alphabet is plain text."""
    try:
        return bytes([BYTE_ALPHABET[letter] for letter in piece])
    except KeyError:
        return piece.encode()


def sentencepiece(replacements: tuple[tuple[str, str], ...], byte_fallback: bool) -> Callable[[str], bytes]:
    """Bytes of a SentencePiece piece: text with its spaces spelled otherwise, or one byte `<0xNN>`."""

    def to_bytes(piece: str) -> bytes:
        if byte_fallback and (match := _BYTE_PIECE.fullmatch(piece)):
            return bytes([int(match[1], 16)])
        for old, new in replacements:
            piece = piece.replace(old, new)
        return piece.encode()

    return to_bytes


def strip_leading(data: bytes, leading_spaces: int) -> bytes:
    """`data` without its first spaces, at most `leading_spaces` of them."""
    num_spaces = len(data) - len(data.lstrip(b" "))
    return data[min(num_spaces, leading_spaces) :]


def read_decoder(backend: tokenizers.Tokenizer, source: str) -> Pieces:
    """How `backend` turns pieces into text. Raises `ModelError` naming `source` and the decoder's kind."""
    steps = _decoder_steps(backend)
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return Pieces(byte_level)
    if kinds == ["Metaspace"]:
        leading_spaces = 0 if steps[0]["prepend_scheme"] == "never" else 1
        return Pieces(sentencepiece(((steps[0]["replacement"], " "),), byte_fallback=False), leading_spaces)
    if "ByteFallback" in kinds and all(map(_is_fusing_step, steps)):
        replacements = tuple((s["pattern"]["String"], s["content"]) for s in steps if s["type"] == "Replace")
        leading_spaces = sum(step["start"] for step in steps if step["type"] == "Strip")
        return Pieces(sentencepiece(replacements, byte_fallback=True), leading_spaces)
    raise ModelError(
        f"{source}: cannot decode with {' + '.join(kinds)}; "
        "known decoders are byte-level BPE and SentencePiece."
    )


def _decoder_steps(backend: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    """The decoder in the library's JSON form, as a flat list of steps."""
    if backend.decoder is None:
        return [{"type": "no decoder"}]
    decoder: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    return decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]


def _is_fusing_step(step: dict[str, Any]) -> bool:
    """Whether a step treats pieces one by one, or strips spaces from the start of the whole text only."""
    if step["type"] == "Replace":
        return "String" in step["pattern"]
    if step["type"] == "Strip":
        return bool(step["content"] == " " and step["stop"] == 0)
    kind: str = step["type"]
    return kind in ("ByteFallback", "Fuse")
