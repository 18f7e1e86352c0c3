"""How much text a token can stand for, so that a text far too long is refused without tokenising it.

A bound holds only where no character is merged with any number of others, or lost, on its way to the tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any

import tokenizers
from tokenizers import models

from specserve.text.pieces import BYTE_ALPHABET

COMPOSED = 4  # the most characters that Unicode's composition (NFC) makes one of
_SPELLED = {byte: letter for letter, byte in BYTE_ALPHABET.items()}
_CONTROLS = frozenset(map(chr, range(32)))  # nothing else is normalised to one
_BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
_KEEPS_ALL = ("ByteLevel", "Metaspace", "Digits", "UnicodeScripts")


@dataclass(frozen=True, slots=True)
class Reach:
    """A token stands for at most `longest` characters of a text; those that have no token (`lost`) come on
    top."""

    longest: int
    lost: frozenset[str] = frozenset()

    def surely_exceeds(self, text: str, num_tokens: int) -> bool:
        """Whether `text` certainly has more tokens than that."""
        most = num_tokens * self.longest
        return len(text) > most and len(text) - sum(map(text.count, self.lost)) > most


def reach(backend: tokenizers.Tokenizer) -> Reach | None:
    """None where nothing bounds what a token stands for. Reads the whole vocabulary: tens of milliseconds."""
    vocabulary = backend.get_vocab(with_added_tokens=True)
    normalizer, words = _state(backend.normalizer), _state(backend.pre_tokenizer)
    shrinks, lost = _shrinks_by(normalizer), _lost(backend.model, words, vocabulary)
    if shrinks is None or lost is None or not _splits_all(words):
        return None
    if lost and normalizer not in (None, {"type": "NFC"}):  # others may write such characters themselves
        return None
    lengths = [len(piece) for piece in vocabulary]
    for token in backend.get_added_tokens_decoder().values():
        if token.lstrip or token.rstrip:  # it takes any number of spaces with it
            return None
        if token.normalized and backend.normalizer is not None:
            lengths.append(len(backend.normalizer.normalize_str(token.content)))
    return Reach(shrinks * max(lengths), lost)


def _state(part: Any) -> dict[str, Any] | None:
    """A normalizer or a pre-tokenizer in the library's JSON form."""
    return None if part is None else json.loads(part.__getstate__())


def _shrinks_by(normalizer: dict[str, Any] | None) -> int | None:
    """The most characters that become one; None where that cannot be told."""
    match normalizer:
        case None | {"type": "Prepend"}:
            return 1
        case {"type": "NFC"}:
            return COMPOSED
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
            return 1 if len(old) <= len(new) else None
        case {"type": "Sequence", "normalizers": list(steps)}:
            factors = [factor for step in steps if (factor := _shrinks_by(step)) is not None]
            return prod(factors) if len(factors) == len(steps) else None
    return None


def _splits_all(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Whether words are cut but no character is dropped."""
    match pre_tokenizer:
        case None:
            return True
        case {"type": "Sequence", "pretokenizers": list(steps)}:
            return all(map(_splits_all, steps))
        case {"type": "Split" | "Punctuation", "behavior": str(behavior)}:
            return behavior != "Removed"
        case {"type": str(kind)}:
            return kind in _KEEPS_ALL
    return False


def _lost(
    model: Any, pre_tokenizer: dict[str, Any] | None, vocabulary: dict[str, int]
) -> frozenset[str] | None:
    """Characters without a token of their own, which are dropped; None where a run of them may be one token,
    or where they are more than controls."""
    if not isinstance(model, models.BPE) or model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    if model.byte_fallback and vocabulary.keys() >= _BYTES:
        return frozenset()
    if not _is_byte_level(pre_tokenizer):
        return None
    if any(_SPELLED[byte] not in vocabulary for byte in range(0x80, 0xC0)):  # every longer character has one
        return None
    lost = frozenset(chr(byte) for byte in range(0x80) if _SPELLED[byte] not in vocabulary)
    is_dropped = model.unk_token is None and lost <= _CONTROLS
    return lost if is_dropped or not lost else None


def _is_byte_level(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Whether its last step spells the text in letters that stand for bytes."""
    match pre_tokenizer:
        case {"type": "Sequence", "pretokenizers": [*_, last]}:
            return _is_byte_level(last)
        case {"type": "ByteLevel"}:
            return True
    return False
