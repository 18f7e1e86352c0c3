"""What is served, as far as HTTP is concerned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specserve.server.errors import ApiError
from specserve.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Served:
    """`names` are what clients may call the model, the first is its own; `root` is where it came from.

    `default_sampling` is the model's generation config by our names. Counts are in tokens.
    """

    names: tuple[str, ...]
    root: str
    tokenizer: Tokenizer
    max_model_len: int
    default_sampling: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None  # replaces the model's own
    trusts_request_templates: bool = False
    response_role: str = "assistant"
    lossy_rule: str | None = None  # the verification rule's name, if it changes the text
    reports_speculation: bool = False  # `metrics.speculative_decoding` in replies
    stream_interval: int = 1  # tokens per chunk at least
    forces_usage: bool = False  # usage in every stream, asked for or not
    shows_cached_tokens: bool = True  # in the usage

    def name_for(self, asked: str | None) -> str:
        """The name a reply carries. Raises `ApiError` 404 for a model that is not served."""
        if asked is None:
            return self.names[0]
        if asked not in self.names:
            valid = ", ".join(f"`{name}`" for name in self.names)
            raise ApiError(404, f"The model `{asked}` does not exist. Served here: {valid}.", param="model")
        return asked
