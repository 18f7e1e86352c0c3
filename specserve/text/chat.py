"""Chat messages to prompt text, by the model's own Jinja template, rendered as transformers renders it.

    render(tokenizer, [{"role": "user", "content": "Hello"}])

A template is a program from outside: it runs in Jinja's sandbox, and whatever it raises is the request's
error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from specserve.errors import InvalidRequest
from specserve.text.tokenizer import Tokenizer

_PART_SEPARATOR = "\n"  # between the text parts of one message, as vLLM and llama.cpp join them
_REASONING = ("reasoning_content", "thinking", "reasoning")  # names templates read a message's reasoning by
_CUT = (
    "\N{REPLACEMENT CHARACTER}specserve-cut\N{REPLACEMENT CHARACTER}"  # marks where a continued message ends
)


def render(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    chat_template: str | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> str:
    """The prompt of a chat. `chat_template` replaces the model's; `template_kwargs` are its variables.

    `content` is a string or a list of text parts. With `continue_final_message` the prompt ends inside the
    last message, which the model then goes on with. Raises `InvalidRequest` naming `messages` or
    `chat_template`.
    """
    source = tokenizer.chat_template if chat_template is None else chat_template
    if source is None:
        raise InvalidRequest(
            "This model has no chat template: give one as chat_template, or send a plain prompt.",
            "chat_template",
        )
    if continue_final_message and add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt exclude each other; set one of them to false.",
            "continue_final_message",
        )
    chat = _plain_chat(messages)
    final = _mark_final(chat) if continue_final_message else ""
    variables = {
        "tools": None,
        "documents": None,
        **tokenizer.named_tokens,
        **(template_kwargs or {}),
        "messages": chat,
        "add_generation_prompt": add_generation_prompt,
    }
    text = _run(source, variables)
    return _cut_after(text, final) if continue_final_message else text


def _plain_chat(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if not messages:
        raise InvalidRequest("messages must not be empty.", "messages")
    return [_plain_message(message) for message in messages]


def _plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates expect it: content as a string, unset fields absent, one name for reasoning."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InvalidRequest(f"Each message must be an object with a role, got {message!r}.", "messages")
    plain = {key: value for key, value in message.items() if value is not None}
    if "content" in plain:
        plain["content"] = text_of(plain["content"])
    reasoning = next((plain[name] for name in _REASONING if name in plain), None)
    if reasoning is not None:
        plain = {"thinking": reasoning, **plain, "reasoning_content": reasoning}
    return plain


def text_of(content: Any) -> str:
    """A message's content, a string or a list of text parts, as one text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequest(
            f"content must be a string or a list of text parts, got {type(content).__name__}.", "messages"
        )
    return _PART_SEPARATOR.join(map(_part_text, content))


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if kind != "text":
        raise InvalidRequest(
            f"content parts of type {kind!r} are not supported; this model reads text parts only.", "messages"
        )
    if not isinstance(part.get("text"), str):
        raise InvalidRequest("A text part must have its text as a string.", "messages")
    text: str = part["text"]
    return text


def _mark_final(chat: list[dict[str, Any]]) -> str:
    """Put the cut mark behind the last message; return that message's text."""
    final = chat[-1].get("content")
    if final is None:
        raise InvalidRequest("continue_final_message needs a last message with content.", "messages")
    chat[-1]["content"] = f"{final}{_CUT} "
    return str(final)


def _cut_after(text: str, final: str) -> str:
    """`text` up to the mark. A template that trims content takes the blank behind the mark away; then the
    blanks at the end of the message itself go too."""
    before, mark, after = text.rpartition(_CUT)
    if not mark or final.strip() not in before:
        raise InvalidRequest(
            "continue_final_message: the chat template does not show the last message as it is.", "messages"
        )
    return before if after.startswith(" ") else before.rstrip()


def _run(source: str, variables: Mapping[str, Any]) -> str:
    try:
        template = _compile(source)
    except (jinja2.TemplateError, RecursionError) as error:
        raise InvalidRequest(f"The chat template is not valid Jinja: {error}", "chat_template") from error
    try:
        return template.render(variables)
    except Exception as error:  # of any type: the template's code decides
        raise InvalidRequest(f"The chat template refused these messages: {error}", "messages") from error


@lru_cache(maxsize=16)
def _compile(source: str) -> jinja2.Template:
    """Compiling takes milliseconds, the same template is used for every request."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(source)


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` … `{% endgeneration %}` marks the model's part for training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own declaration)

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own `tojson` escapes HTML, which a prompt must not."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> str:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)
