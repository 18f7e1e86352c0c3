"""A tokenizer from a folder in Hugging Face's layout.

`tokenizer.json` is the whole definition where it exists (`add_bos_token` of the configuration does not
count beside it), and reading it directly saves the seconds that importing transformers takes. Other
layouts (`tokenizer.model`, `vocab.json` + `merges.txt`, code of the folder's own) go through transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers

from specserve.errors import ModelError
from specserve.text.parts import NAMED_TOKENS, Parts

_FLAGS = ("lstrip", "rstrip", "normalized", "single_word")


def load_folder(path: Path, *, trust: bool) -> Parts:
    """Raises `ModelError` naming the file that is missing or broken."""
    if not (path / "tokenizer.json").is_file():
        return _load_with_transformers(path, trust)
    config = _read_json(path / "tokenizer_config.json")
    named = _named_tokens(config, _read_json(path / "special_tokens_map.json"))
    backend = _read_backend(path / "tokenizer.json")
    backend.no_truncation()
    backend.no_padding()
    _add_missing_tokens(backend, config, named)
    return Parts(backend, named, _chat_template(path, config))


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not valid JSON ({error}).") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(content).__name__}.")
    return content


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(
            f"{path}: not a tokenizer this version of `tokenizers` can read ({error})."
        ) from error


def _text_of(token: Any) -> str | None:
    """A token is written as its text, or as an object with its text in `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _named_tokens(*sources: dict[str, Any]) -> dict[str, str]:
    """The first source that sets a name wins."""
    named: dict[str, str] = {}
    for name in NAMED_TOKENS:
        texts = (_text_of(source.get(name)) for source in sources)
        if (text := next((text for text in texts if text is not None), None)) is not None:
            named[name] = text
    return named


def _add_missing_tokens(backend: tokenizers.Tokenizer, config: dict[str, Any], named: dict[str, str]) -> None:
    """Tokens that only `tokenizer_config.json` declares: older folders leave them out of `tokenizer.json`."""
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    declared = config.get("added_tokens_decoder", {})
    for _, token in sorted(declared.items(), key=lambda item: int(item[0])):
        if token["content"] not in known:
            flags = {flag: bool(token.get(flag, False)) for flag in _FLAGS}
            special = bool(token.get("special", False))
            backend.add_tokens([tokenizers.AddedToken(token["content"], special=special, **flags)])
            known.add(token["content"])
    for text in named.values():
        if text not in known and backend.token_to_id(text) is not None:
            backend.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False)])


def _chat_template(path: Path, config: dict[str, Any]) -> str | None:
    """A file of its own wins over the configuration; among several templates, the one named "default"."""
    if (file := path / "chat_template.jinja").is_file():
        return file.read_text("utf-8")
    template = _read_json(path / "chat_template.json").get("chat_template", config.get("chat_template"))
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template if isinstance(template, str) else None


def _load_with_transformers(path: Path, trust: bool) -> Parts:
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=trust)
    except (
        Exception
    ) as error:  # whatever the folder's kind raises: OSError, ImportError, ValueError, KeyError
        raise ModelError(
            f"{path}: no tokenizer.json, and transformers cannot load a tokenizer from it ({error})."
        ) from error
    backend = getattr(loaded, "backend_tokenizer", None)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise ModelError(f"{path}: {type(loaded).__name__} cannot be used; convert it to tokenizer.json.")
    template = loaded.chat_template
    return Parts(
        backend,
        dict(loaded.special_tokens_map),
        template.get("default") if isinstance(template, dict) else template,
    )
