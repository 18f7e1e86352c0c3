"""From a question to the body of a request. A model's chat template goes around a question exactly once.

With `openai-chat` the server applies it; with `openai` it is applied here, to what is said to an assistant.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from specserve.bench.dataset import Question
from specserve.config.bench_serving import CHAT, DatasetFlags
from specserve.config.flags import select
from specserve.config.options import from_mapping
from specserve.config.terminal import SamplingFlags
from specserve.errors import UserError
from specserve.models.find import ALIASES, find_model, is_installed
from specserve.text.chat import render
from specserve.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

NO_TEMPERATURE = (
    "temperature is not given, so the model's default decides; say --temperature 0 for greedy answers."
)
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


@dataclass(frozen=True, slots=True)
class Asker:
    """`sampling` and `extra` are fields of every body, the latter wins over everything."""

    backend: str
    model: str
    tokenizer: Tokenizer | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    logprobs: int | None = None
    template_kwargs: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self, question: Question) -> dict[str, Any]:
        build = self._chat if self.backend == CHAT else self._completion
        return {"model": self.model, **build(question), **STREAMED, **self.sampling, **self.extra}

    def _chat(self, question: Question) -> dict[str, Any]:
        content = [{"type": "text", "text": question.text}]
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": content}],
            "max_completion_tokens": question.output_len,
        }
        if self.logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": self.logprobs}
        if self.template_kwargs:
            body["chat_template_kwargs"] = dict(self.template_kwargs)
        return body

    def _completion(self, question: Question) -> dict[str, Any]:
        rest = {"repetition_penalty": 1.0, "max_tokens": question.output_len, "logprobs": self.logprobs}
        if question.ids is not None:
            return {"prompt": list(question.ids), **rest}
        if self.tokenizer is None or not wants_template(question, self.tokenizer):
            return {"prompt": question.text, **rest}
        prompt = templated(question, self.tokenizer, self.template_kwargs)
        if self.tokenizer.encode("") != []:  # the template has written what the tokenizer would add again
            rest["add_special_tokens"] = False
        return {"prompt": prompt, **rest}


def wants_template(question: Question, tokenizer: Tokenizer) -> bool:
    return question.is_chat and tokenizer.chat_template is not None


def templated(question: Question, tokenizer: Tokenizer, variables: Mapping[str, Any] | None = None) -> str:
    """The prompt of a chat in which the question is all that was said."""
    messages = [{"role": "user", "content": question.text}]
    return render(tokenizer, messages, template_kwargs=variables)


def prompt_ids(question: Question, tokenizer: Tokenizer) -> list[int]:
    """What a model in this process is given."""
    if question.ids is not None:
        return list(question.ids)
    if wants_template(question, tokenizer):
        return tokenizer.encode(templated(question, tokenizer), add_special_tokens=False)
    return tokenizer.encode(question.text)


def read_questions(values: Mapping[str, Any]) -> tuple[DatasetFlags, SamplingFlags]:
    """What is asked and how, from untyped options; `max_tokens` is another word for `output_len`."""
    sampling = from_mapping(SamplingFlags, select(values, SamplingFlags))
    dataset = from_mapping(DatasetFlags, select(values, DatasetFlags))
    if dataset.output_len is None and sampling.max_tokens is not None:
        dataset = replace(dataset, output_len=sampling.max_tokens)
    return dataset, sampling


def given_sampling(flags: SamplingFlags) -> dict[str, Any]:
    """The parameters that were given; `max_tokens` is not one here, the questions have their own lengths.

    Warns when there is no temperature.
    """
    if flags.temperature is None:
        logger.warning(NO_TEMPERATURE)
    given = {f.name: getattr(flags, f.name) for f in fields(flags) if getattr(flags, f.name) != f.default}
    given.pop("max_tokens", None)
    return {name: list(value) if name == "stop" else value for name, value in given.items()}


def find_tokenizer(name: str | None, model: str | None) -> Tokenizer | None:
    """The one that was named, else the model's if its files are on this machine; nothing is downloaded.

    Raises `ModelError` when the named one cannot be loaded.
    """
    if name is not None:
        return Tokenizer.load(find_model(name).path if name in ALIASES else Path(name).expanduser())
    if model is None:
        return None
    is_here = is_installed(model) if model in ALIASES else Path(model).expanduser().exists()
    try:
        return Tokenizer.load(find_model(model).path) if is_here else None
    except UserError as error:
        logger.warning("The tokenizer of %s cannot be used (%s).", model, error)
        return None
