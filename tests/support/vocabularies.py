"""Tiny tokenizers made on the spot: byte-level BPE and SentencePiece-like, as parts or GGUF files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from specserve.text.parts import Parts
from specserve.text.tokenizer import Tokenizer

CORPUS = [
    "the quick brown fox jumps over the lazy dog and the other dogs",
    "def function(value): return value + 1",
    "Grüße aus Köln, 你好世界, 🙂🙃",
    "the the the then there these those",
]
SPECIAL = ["<|begin|>", "<|end|>"]
NAMED = {"bos_token": "<|begin|>", "eos_token": "<|end|>"}
PIECES = ["▁", "h", "e", "l", "o", "w", "r", "d", "he", "ll", "llo", "hello", "▁hello", "▁w", "or", "▁wor"]
PIECES += ["▁world", "ld", "!", "你", "\u00e9"]


def byte_level_backend(vocab_size: int = 320) -> tokenizers.Tokenizer:
    """Special tokens have the ids 0 and 1; most of the text in `CORPUS` takes several bytes per token."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def sentencepiece_vocabulary() -> list[tuple[str, int, float]]:
    """(piece, GGUF token type, score): unknown, begin, end, all bytes, then `PIECES`, the longest best."""
    head = [("<unk>", 2, 0.0), ("<s>", 3, 0.0), ("</s>", 3, 0.0)]
    single_bytes = [(f"<0x{byte:02X}>", 6, 0.0) for byte in range(256)]
    ranked = sorted(PIECES, key=len, reverse=True)
    return [*head, *single_bytes, *((piece, 1, -float(rank)) for rank, piece in enumerate(ranked))]


def sentencepiece_backend(prefix: bool = True) -> tokenizers.Tokenizer:
    """Byte fallback, and a leading space that decoding takes away again when `prefix`."""
    pieces = [piece for piece, _, _ in sentencepiece_vocabulary()]
    vocabulary = {piece: rank for rank, piece in enumerate(pieces)}
    merges = [
        (piece[:at], piece[at:])
        for piece in sorted(PIECES, key=len, reverse=True)
        for at in range(len(piece) - 1, 0, -1)
        if piece[:at] in vocabulary and piece[at:] in vocabulary
    ]
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    spaces = normalizers.Replace(" ", "▁")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    backend.add_special_tokens(["<s>", "</s>"])
    return backend


def byte_level_tokenizer(chat_template: str | None = None) -> Tokenizer:
    return Tokenizer(Parts(byte_level_backend(), NAMED, chat_template))


def sentencepiece_tokenizer(prefix: bool = True, chat_template: str | None = None) -> Tokenizer:
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return Tokenizer(Parts(sentencepiece_backend(prefix), named, chat_template))


def write_gguf(path: Path, keys: Mapping[str, Any], architecture: str = "llama") -> Path:
    """A GGUF file with these keys and no tensors."""
    writer = gguf.GGUFWriter(str(path), architecture)
    for key, value in keys.items():
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case _:
                writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def byte_level_keys(pre: str = "gpt-2") -> dict[str, Any]:
    """The metadata that describes `byte_level_backend()`."""
    backend = byte_level_backend()
    pieces = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    merges = _merges(backend)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [piece for piece, _ in pieces],
        "tokenizer.ggml.token_type": [3 if piece in SPECIAL else 1 for piece, _ in pieces],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }


def sentencepiece_keys(prefix: bool = True) -> dict[str, Any]:
    pieces, kinds, scores = zip(*sentencepiece_vocabulary(), strict=True)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": list(pieces),
        "tokenizer.ggml.token_type": list(kinds),
        "tokenizer.ggml.scores": list(scores),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": prefix,
    }


def _merges(backend: tokenizers.Tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(backend.to_str())["model"]["merges"]]
