"""A tokenizer from the metadata of a GGUF file (keys `tokenizer.ggml.*`).

Two kinds of vocabulary: "gpt2" is byte-level BPE, whose split of text into words is named by
`tokenizer.ggml.pre`; "llama" is SentencePiece BPE, whose merges follow from the scores of its pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from itertools import count
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers

from specserve.errors import ModelError
from specserve.text.gguf_metadata import read_metadata
from specserve.text.parts import Parts, set_frame
from specserve.text.splits import SPLITS

_NAMED = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


class Kind(IntEnum):
    """Kinds of token that matter here, as numbered in `tokenizer.ggml.token_type`."""

    NORMAL = 1
    CONTROL = 3
    USER_DEFINED = 4


def load_gguf(path: Path) -> Parts:
    """Raises `ModelError` naming the file and the vocabulary's kind when it is not a known one."""
    metadata = read_metadata(path)
    keys = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in metadata.items()
        if key.startswith("tokenizer.ggml.")
    }
    if not keys.get("tokens"):
        raise ModelError(f"{path}: no vocabulary (tokenizer.ggml.tokens) in the file's metadata.")
    named = {
        name: keys["tokens"][keys[key]]
        for name, key in _NAMED.items()
        if 0 <= keys.get(key, -1) < len(keys["tokens"])
    }
    try:
        backend = _build(keys, named, path)
    except ModelError:
        raise
    except Exception as error:  # the library raises bare Exception for merges of unknown pieces and the like
        raise ModelError(
            f"{path}: the vocabulary in the file's metadata is inconsistent ({error})."
        ) from error
    return Parts(backend, named, metadata.get("tokenizer.chat_template"))


def _build(keys: Mapping[str, Any], named: Mapping[str, str], path: Path) -> tokenizers.Tokenizer:
    kind = keys.get("model")
    if kind == "gpt2":
        backend, adds_begin = _byte_level(keys, path)
    elif kind == "llama":
        backend, adds_begin = _sentencepiece(keys, named), True
    else:
        raise ModelError(
            f"{path}: vocabulary of the unknown kind {kind!r} (tokenizer.ggml.model); "
            "known are 'gpt2' and 'llama'."
        )
    _add_tokens(backend, keys)
    set_frame(
        backend,
        named.get("bos_token") if keys.get("add_bos_token", adds_begin) else None,
        named.get("eos_token") if keys.get("add_eos_token", False) else None,
    )
    return backend


def _byte_level(keys: Mapping[str, Any], path: Path) -> tuple[tokenizers.Tokenizer, bool]:
    """The tokenizer, and whether such files mean a begin token when they do not say."""
    name = keys.get("pre", "default")
    split = SPLITS.get(name)
    if split is None:
        raise ModelError(
            f"{path}: byte-level BPE with the unknown split {name!r} (tokenizer.ggml.pre); "
            f"known are {', '.join(SPLITS)}."
        )
    merges = [tuple(merge.split(" ", 1)) for merge in keys.get("merges", [])]
    vocabulary = dict(zip(keys["tokens"], count()))
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, ignore_merges=split.takes_whole_words)
    )
    if split.composes:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = split.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    return backend, split.adds_begin


def _sentencepiece(keys: Mapping[str, Any], named: Mapping[str, str]) -> tokenizers.Tokenizer:
    tokens = keys["tokens"]
    vocabulary = dict(zip(tokens, count()))
    unknown = named.get("unk_token", "<unk>")
    model = models.BPE(
        vocab=vocabulary,
        merges=merges_of(_normal(tokens, keys), vocabulary),
        unk_token=unknown if unknown in vocabulary else None,
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = tokenizers.Tokenizer(model)
    spaces = normalizers.Replace(" ", "▁")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if keys.get("add_space_prefix", True):
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        backend.normalizer = spaces
    backend.decoder = decoders.Sequence(steps)
    return backend


def _normal(tokens: list[str], keys: Mapping[str, Any]) -> dict[str, float]:
    """Scores of the pieces that merging can produce: not bytes, not control or user-defined tokens."""
    kinds = keys.get("token_type") or [Kind.NORMAL] * len(tokens)
    scores = keys.get("scores") or [-float(rank) for rank in range(len(tokens))]
    return {
        token: score for token, kind, score in zip(tokens, kinds, scores, strict=True) if kind == Kind.NORMAL
    }


def merges_of(scores: Mapping[str, float], vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges a SentencePiece BPE vocabulary implies: every split of a piece into two pieces.

    SentencePiece joins the neighbours whose union scores best; so a merge ranks by its union's score.
    """
    found = []
    for piece, score in scores.items():
        for at in range(len(piece) - 1, 0, -1):
            left = piece[:at]
            if left in vocabulary and (right := piece[at:]) in vocabulary:
                found.append((-score, -at, left, right))
    found.sort()
    return [(left, right) for _, _, left, right in found]


def _add_tokens(backend: tokenizers.Tokenizer, keys: Mapping[str, Any]) -> None:
    """Control tokens are special; user-defined ones are text. Both are matched whole, before splitting."""
    pairs = list(zip(keys["tokens"], keys.get("token_type") or [], strict=False))
    for kind, special in ((Kind.CONTROL, True), (Kind.USER_DEFINED, False)):
        backend.add_tokens(
            [
                tokenizers.AddedToken(token, special=special, normalized=False)
                for token, token_kind in pairs
                if token_kind == kind and token
            ]
        )
