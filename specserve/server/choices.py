"""One of a reply's texts, and the shapes it is shown in: completion, chat message, chat delta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specserve.server.jobs import Job, Prompt
from specserve.server.logprobs import (
    Offsets,
    TokenName,
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
    token_name,
)
from specserve.server.params import shows_only_prompt
from specserve.server.schema import ChatBody
from specserve.server.served import Served
from specserve.text.chat import text_of
from specserve.text.tokenizer import Tokenizer
from specserve.types import Logprobs, Output


@dataclass(frozen=True, slots=True)
class Form:
    """What the request wants to see, the same for all of its choices."""

    tokenizer: Tokenizer
    name: TokenName
    num_top: int  # top_logprobs of a chat
    has_logprobs: bool
    has_prompt_logprobs: bool
    has_token_ids: bool
    is_echo: bool
    shows_output: bool
    prefix: str  # of a chat's text: the message it goes on with, if that is to be echoed
    skips_special: bool
    role: str

    @classmethod
    def of(cls, job: Job, served: Served) -> Form:
        body = job.body
        is_chat = isinstance(body, ChatBody)
        return cls(
            tokenizer=served.tokenizer,
            name=token_name(served.tokenizer, bool(body.return_tokens_as_token_ids)),
            num_top=job.params.logprobs or 0,
            has_logprobs=job.params.logprobs is not None,
            has_prompt_logprobs=body.prompt_logprobs is not None,
            has_token_ids=bool(body.return_token_ids),
            is_echo=not is_chat and bool(body.echo),
            shows_output=not shows_only_prompt(body),
            prefix=_prefix(body, served) if isinstance(body, ChatBody) and body.echo else "",
            skips_special=job.params.skip_special_tokens,
            role=_role(body, served) if isinstance(body, ChatBody) else "",
        )

    @property
    def shows_tokens(self) -> bool:
        """Tokens count as news even while their text is held back."""
        return self.has_logprobs or self.has_token_ids

    def prompt_fields(self, choice: Choice) -> dict[str, Any]:
        """What is said of the prompt: in each choice of a completion, once in a chat."""
        fields: dict[str, Any] = {}
        if self.has_prompt_logprobs and choice.prompt_logprobs is not None:
            fields["prompt_logprobs"] = prompt_logprobs(choice.prompt_logprobs, self.tokenizer)
        if self.has_token_ids:
            fields["prompt_token_ids"] = choice.prompt.ids
        return fields


def _role(body: ChatBody, served: Served) -> str:
    """A reply that goes on with the last message has that message's role."""
    if body.add_generation_prompt is False:
        return str(body.messages[-1].get("role"))
    return served.response_role


def _prefix(body: ChatBody, served: Served) -> str:
    last = body.messages[-1]
    return text_of(last.get("content") or "") if last.get("role") == _role(body, served) else ""


class Choice:
    """What came of one sequence and was not shown yet."""

    def __init__(self, index: int, prompt: Prompt, form: Form) -> None:
        self.index = index
        self.prompt = prompt
        self.offsets = Offsets(form.tokenizer, form.skips_special)
        self.prompt_logprobs: list[Logprobs | None] | None = None
        self.transfer: Mapping[str, str] | None = None
        self.is_first = True  # nothing shown yet
        self._shows_tokens = form.shows_tokens
        self._shows_output = form.shows_output
        self._held: list[Output] = []
        self._num_held = 0  # tokens

    def hold(self, output: Output) -> None:
        if not self._shows_output:
            output = replace(output, token_ids=[], text="", logprobs=None)
        self._held.append(output)
        self._num_held += len(output.token_ids)

    def is_due(self, interval: int) -> bool:
        """Whether to show now: at the start, at the end, and every `interval` tokens, if there is news."""
        if self._held[-1].finish_reason is not None:
            return True
        if self._num_held < interval and not self.is_first:
            return False
        return self._shows_tokens or any(output.text for output in self._held)

    def take(self) -> Output:
        """All that is held, as one output."""
        held, self._held, self._num_held = self._held, [], 0
        return held[0] if len(held) == 1 else _merge(held)


def _merge(outputs: Sequence[Output]) -> Output:
    last = outputs[-1]
    logprobs = [entry for output in outputs for entry in output.logprobs or []]
    return Output(
        request_id=last.request_id,
        index=last.index,
        token_ids=[token for output in outputs for token in output.token_ids],
        text="".join([output.text for output in outputs]),
        logprobs=logprobs if any(output.logprobs is not None for output in outputs) else None,
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
    )


def completion(choice: Choice, output: Output, form: Form) -> dict[str, Any]:
    """A choice of `/v1/completions`, whole or a chunk's part."""
    is_first, choice.is_first = choice.is_first, False
    shows_prompt = is_first and form.is_echo
    shown = {
        "index": choice.index,
        "text": _prompt_text(choice, form) + output.text if shows_prompt else output.text,
        "logprobs": _completion_logprobs(choice, output, form, shows_prompt) if form.has_logprobs else None,
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
    }
    if is_first:
        shown |= form.prompt_fields(choice)
    return shown | _token_ids(output, form)


def message(choice: Choice, output: Output, form: Form) -> dict[str, Any]:
    """A choice of `/v1/chat/completions`."""
    return _chat(choice, output, form, {"message": {"role": form.role, "content": form.prefix + output.text}})


def delta(choice: Choice, output: Output, form: Form) -> dict[str, Any]:
    """A chat chunk's part of a choice."""
    choice.is_first = False
    return _chat(choice, output, form, {"delta": {"content": output.text}})


def _chat(choice: Choice, output: Output, form: Form, text: dict[str, Any]) -> dict[str, Any]:
    logprobs = None
    if form.has_logprobs:
        entries = output.logprobs or []
        logprobs = chat_logprobs(output.token_ids, entries, form.num_top, form.name, form.tokenizer)
    shown = {
        "index": choice.index,
        **text,
        "logprobs": logprobs,
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
    }
    return shown | _token_ids(output, form)


def _token_ids(output: Output, form: Form) -> dict[str, Any]:
    return {"token_ids": output.token_ids} if form.has_token_ids else {}


def _prompt_text(choice: Choice, form: Form) -> str:
    prompt = choice.prompt
    if prompt.text is not None:
        return prompt.text
    return form.tokenizer.decode(prompt.ids, form.skips_special)


def _completion_logprobs(choice: Choice, output: Output, form: Form, shows_prompt: bool) -> dict[str, Any]:
    ids: list[int] = output.token_ids
    entries: list[Logprobs | None] = list(output.logprobs or [])
    if shows_prompt and choice.prompt_logprobs is not None:
        ids, entries = choice.prompt.ids + ids, choice.prompt_logprobs + entries
    return completion_logprobs(ids, entries, form.name, choice.offsets)
