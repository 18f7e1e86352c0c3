"""From the bytes of a body to requests for the engine: parse, template, tokenise, check.

This is the slow part of taking a request; it runs in a thread pool, off the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from specserve.engine.admission import predicted_ids
from specserve.errors import InvalidRequest
from specserve.server.params import as_written, asked_tokens, sampling_params
from specserve.server.schema import (
    ChatBody,
    CompletionBody,
    TokenizeBody,
    check_search,
    check_stream_options,
    parse,
)
from specserve.server.served import Served
from specserve.text.chat import render
from specserve.types import Request, SamplingParams

_PREFIXES = {CompletionBody: "cmpl-", ChatBody: "chatcmpl-"}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request came from. `arrival` is in seconds of `time.monotonic`, `tenant` stands for the key."""

    request_id: str
    tenant: str
    arrival: float
    is_named: bool = False  # the client chose the id


@dataclass(frozen=True, slots=True)
class Prompt:
    """`text` is what was sent, or rendered, unless it was cut or came as ids."""

    ids: list[int]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One HTTP request, ready for the engine: a request per prompt, each with `params.n` choices."""

    reply_id: str
    created: int  # Unix time
    model: str
    body: CompletionBody | ChatBody
    params: SamplingParams
    prompts: list[Prompt]
    requests: list[Request]

    @property
    def is_stream(self) -> bool:
        return bool(self.body.stream)

    @property
    def is_single(self) -> bool:
        """One prompt, one choice: what per-request figures are given for."""
        return len(self.requests) == self.params.n == 1


class Jobs:
    """Makes jobs. `check` is the engine's; `max_sequences` is what fits into its queue at all."""

    def __init__(self, served: Served, check: Callable[[Request], None], max_sequences: int) -> None:
        self._served = served
        self._check = check
        self._max_sequences = max_sequences
        self._serial = count()  # keeps the ids apart that clients choose

    def make(self, kind: type[CompletionBody] | type[ChatBody], raw: bytes, origin: Origin) -> Job:
        """Raises `UserError` and `ApiError`, naming the field."""
        body = parse(kind, raw)
        model = self._served.name_for(body.model)
        check_stream_options(body)
        check_search(body)
        params = sampling_params(body, self._served.default_sampling)
        self._check_number(body, params.n)
        with as_written(body):
            prompts = [self._fit(prompt, body, params) for prompt in self._prompts(body, params)]
        public_id = body.request_id if body.request_id and not origin.is_named else origin.request_id
        job = Job(
            _PREFIXES[kind] + public_id,
            int(time.time()),
            model,
            body,
            params,
            prompts,
            self._requests(prompts, body, params, public_id, origin),
        )
        with as_written(body):
            for request in job.requests:
                self._check(request)
        return job

    def tokenize(self, body: TokenizeBody) -> list[int]:
        if (body.prompt is None) == (body.messages is None):
            raise InvalidRequest("Give either prompt or messages.", "prompt")
        if body.prompt is not None:
            return self._served.tokenizer.encode(body.prompt, body.add_special_tokens is not False)
        return self._served.tokenizer.encode(self._render(body, {}), bool(body.add_special_tokens))

    def _check_number(self, body: CompletionBody | ChatBody, n: int) -> None:
        num_prompts = len(body.prompt) if isinstance(body, CompletionBody) else 1
        if num_prompts * n > self._max_sequences:
            raise InvalidRequest(
                f"{num_prompts} prompts with n={n} are more sequences than the queue holds, "
                f"{self._max_sequences}. Send them in several requests.",
                "prompt" if num_prompts > self._max_sequences else "n",
            )

    # --- prompts ------------------------------------------------------------------------------

    def _prompts(self, body: CompletionBody | ChatBody, params: SamplingParams) -> list[Prompt]:
        if isinstance(body, ChatBody):
            variables = {"documents": body.documents, "reasoning_effort": body.reasoning_effort}
            text = self._render(body, {k: v for k, v in variables.items() if v is not None})
            return [self._encoded(text, body, params)]
        return [
            self._encoded(prompt, body, params) if isinstance(prompt, str) else Prompt(prompt)
            for prompt in body.prompt
        ]

    def _encoded(self, text: str, body: CompletionBody | ChatBody, params: SamplingParams) -> Prompt:
        """Raises for a text that its length alone shows to be too long, before tokenising it costs time.
        What is cut to fit may be of any length."""
        tokenizer, limit = self._served.tokenizer, self._served.max_model_len
        keep, adds = params.truncate_prompt_tokens, body.add_special_tokens
        if (keep is None or keep > limit) and tokenizer.surely_exceeds(text, limit):
            raise self._too_long(f"more than {limit}", body)
        is_special = bool(adds) if isinstance(body, ChatBody) else adds is not False
        return Prompt(tokenizer.encode(text, is_special), text)

    def _render(self, body: ChatBody | TokenizeBody, variables: Mapping[str, Any]) -> str:
        """A chat as its template writes it; the template adds the special tokens, the tokenizer none."""
        if body.chat_template is not None and not self._served.trusts_request_templates:
            raise InvalidRequest(
                "chat_template in a request needs the server's --trust-request-chat-template.",
                "chat_template",
            )
        return render(
            self._served.tokenizer,
            body.messages or [],
            add_generation_prompt=body.add_generation_prompt is not False,
            continue_final_message=bool(body.continue_final_message),
            chat_template=body.chat_template or self._served.chat_template,
            template_kwargs={**variables, **(body.chat_template_kwargs or {})},
        )

    def _fit(self, prompt: Prompt, body: CompletionBody | ChatBody, params: SamplingParams) -> Prompt:
        """The prompt, cut if the request says so. Raises when prompt and reply exceed the context."""
        limit, asked = self._served.max_model_len, asked_tokens(body)
        if (keep := params.truncate_prompt_tokens) is not None:
            keep = max(1, limit - (asked or 1)) if keep == -1 else keep
            if keep < len(prompt.ids):
                is_left = body.truncation_side != "right"
                prompt = Prompt(prompt.ids[-keep:] if is_left else prompt.ids[:keep])
        if len(prompt.ids) + (asked or 1) > limit:
            raise self._too_long(str(len(prompt.ids)), body)
        return prompt

    def _too_long(self, num_tokens: str, body: CompletionBody | ChatBody) -> InvalidRequest:
        limit, asked = self._served.max_model_len, asked_tokens(body)
        wanted = f"{asked} requested completion tokens" if asked else "at least one completion token"
        return InvalidRequest(
            f"This model's maximum context length is {limit} tokens; {num_tokens} prompt tokens and {wanted} "
            "do not fit. Shorten the prompt or lower max_tokens.",
            "messages" if isinstance(body, ChatBody) else "prompt",
        )

    def _requests(
        self,
        prompts: list[Prompt],
        body: CompletionBody | ChatBody,
        params: SamplingParams,
        public_id: str,
        origin: Origin,
    ) -> list[Request]:
        tenant = origin.tenant + (f"\0{body.cache_salt}" if body.cache_salt else "")
        predicted = predicted_ids(params, self._served.tokenizer, self._served.max_model_len)
        return [
            Request(
                f"{public_id}-{next(self._serial)}",
                prompt.ids,
                params,
                origin.arrival,
                body.priority or 0,
                tenant,
                predicted,
            )
            for prompt in prompts
        ]
