"""Log-probabilities in OpenAI's two formats, and vLLM's for prompts."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from specserve.text.tokenizer import Tokenizer
from specserve.types import Logprob, Logprobs

LOWEST = -9999.0  # JSON has no -inf

TokenName = Callable[[int], str]


def token_name(tokenizer: Tokenizer, as_ids: bool) -> TokenName:
    """How replies show a token: its text, or `token_id:7`, which tells all tokens apart."""
    return "token_id:{}".format if as_ids else tokenizer.token_text


def finite(logprob: float) -> float:
    return logprob if logprob > LOWEST else LOWEST  # in this order NaN becomes the lowest too


def ranked(entries: Logprobs) -> list[tuple[int, Logprob]]:
    return sorted(entries.items(), key=lambda item: -finite(item[1].logprob))


class Offsets:
    """Where each token begins in the text, in characters; one that ends a character begins before it."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._bytes = tokenizer.token_bytes
        self._skipped = tokenizer.all_special_ids if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num_characters = 0

    def start_of(self, token_id: int) -> int:
        """The offset of the next token; call it once for each, in order."""
        start = self._num_characters
        if token_id not in self._skipped:
            self._num_characters += len(self._decoder.decode(self._bytes(token_id)))
        return start


def completion_logprobs(
    token_ids: Sequence[int], entries: Sequence[Logprobs | None], name: TokenName, offsets: Offsets
) -> dict[str, Any]:
    """Four parallel lists; None for a prompt's first token, which nothing predicted."""
    chosen = zip(token_ids, entries, strict=True)
    return {
        "text_offset": [offsets.start_of(token) for token in token_ids],
        "token_logprobs": [finite(entry[token].logprob) if entry else None for token, entry in chosen],
        "tokens": [name(token) for token in token_ids],
        "top_logprobs": [_by_name(entry, name) if entry else None for entry in entries],
    }


def _by_name(entries: Logprobs, name: TokenName) -> dict[str, float]:
    """Best first. Different tokens may look alike (halves of characters): the better one is kept."""
    named: dict[str, float] = {}
    for token, value in ranked(entries):
        named.setdefault(name(token), finite(value.logprob))
    return named


def chat_logprobs(
    token_ids: Sequence[int], entries: Iterable[Logprobs], num_top: int, name: TokenName, tokenizer: Tokenizer
) -> dict[str, Any]:
    """One object per token, with its exact bytes. The chosen token is in `top_logprobs` only if it is a top
    one."""

    def shown(token: int, value: Logprob) -> dict[str, Any]:
        data = list(tokenizer.token_bytes(token))
        return {"token": name(token), "logprob": finite(value.logprob), "bytes": data}

    content = []
    for token, entry in zip(token_ids, entries, strict=True):
        top = ranked(entry)
        if num_top >= 0:
            top = top[:num_top]
        content.append(
            {**shown(token, entry[token]), "top_logprobs": [shown(other, value) for other, value in top]}
        )
    return {"content": content}


def prompt_logprobs(entries: Sequence[Logprobs | None], tokenizer: Tokenizer) -> list[dict[str, Any] | None]:
    """vLLM's form: per prompt token an object by token id."""
    return [_by_id(entry, tokenizer) if entry else None for entry in entries]


def _by_id(entries: Logprobs, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        str(token): {
            "logprob": finite(value.logprob),
            "rank": value.rank,
            "decoded_token": tokenizer.token_text(token),
        }
        for token, value in entries.items()
    }
