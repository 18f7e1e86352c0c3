"""What a tokenizer is made of, whatever kind of file it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tokenizers

NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class Parts:
    """`backend` is never changed after loading, so any number of threads may encode with it at once.

    `named` maps the names of `NAMED_TOKENS` that the checkpoint sets to their text, as chat templates
    read them.
    """

    backend: tokenizers.Tokenizer
    named: Mapping[str, str]
    chat_template: str | None


def set_frame(backend: tokenizers.Tokenizer, begin: str | None, end: str | None) -> None:
    """Make `backend` put the token `begin` before a text and `end` behind it; None: nothing there."""
    frame = [token for token in (begin, end) if token is not None]
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=[*([begin] if begin else []), "$A", *([end] if end else [])],
        special_tokens=[(token, backend.token_to_id(token)) for token in frame],
    )
