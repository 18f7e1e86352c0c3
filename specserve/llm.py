"""Offline use, in the shape of vLLM's `LLM`: prompts in, finished texts out.

    llm = LLM("smollm2-135m", speculative_config={"method": "ngram", "num_speculative_tokens": 4})
    print(llm.generate("The capital of France is", SamplingParams(temperature=0))[0].outputs[0].text)

The engine runs on the caller's thread; one `LLM` is not for several threads at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any, NoReturn

from specserve.config.engine import EngineConfig, engine_config
from specserve.engine.admission import predicted_ids, truncate_prompt
from specserve.engine.build import Deployment, build
from specserve.errors import InvalidRequest
from specserve.sampling_params import NO_BEAM_SEARCH
from specserve.text.chat import render
from specserve.types import Logprob, Logprobs, Output, Request, SamplingParams, SpecDecodeMetrics

Prompt = str | list[int] | Mapping[str, Any]  # text, token ids, or {"prompt": …} / {"prompt_token_ids": …}
Messages = list[dict[str, Any]]


@dataclass(slots=True)
class CompletionOutput:
    """One of a request's n texts. `logprobs` has one entry per token of `token_ids`; `kv_transfer_params`
    says where the file with its hidden states is, or why there is none."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    spec_decode_metrics: SpecDecodeMetrics | None = None
    kv_transfer_params: Mapping[str, str] | None = None

    @property
    def cumulative_logprob(self) -> float | None:
        if self.logprobs is None:
            return None
        pairs = zip(self.token_ids, self.logprobs, strict=True)
        return sum(entry[token].logprob for token, entry in pairs)

    def add(self, output: Output) -> None:
        self.text += output.text
        self.token_ids += output.token_ids
        if output.logprobs is not None:
            self.logprobs = (self.logprobs or []) + output.logprobs
        self.finish_reason, self.stop_reason = output.finish_reason, output.stop_reason
        self.spec_decode_metrics = output.spec_decode_metrics
        self.kv_transfer_params = output.kv_transfer_params


@dataclass(slots=True)
class RequestOutput:
    """A prompt and its texts, in order of their index. `lossy_rule` names the verification rule if it is one
    that changes the text."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[Logprobs | None] | None = None
    num_cached_tokens: int = 0
    lossy_rule: str | None = None

    @property
    def kv_transfer_params(self) -> Mapping[str, str] | None:
        """Those of the first text."""
        return self.outputs[0].kv_transfer_params

    @property
    def finished(self) -> bool:
        return all(output.finish_reason is not None for output in self.outputs)

    def add(self, output: Output) -> None:
        self.outputs[output.index].add(output)
        if output.index == 0:
            self.num_cached_tokens = output.num_cached_tokens
            if output.prompt_logprobs is not None:
                self.prompt_logprobs = output.prompt_logprobs


class LLM:
    """A model ready to generate. Options are the fields of `EngineConfig`, by their names there.

    Raises `ConfigError` for an option that cannot be and `ModelError` for a model that cannot be loaded.
    """

    def __init__(self, model: str = "smollm2-135m", **options: Any) -> None:
        config = engine_config({"model": model, "seed": 0, **options})
        self._deployment = build(config, is_offline=True)
        self._ids = count()

    @property
    def config(self) -> EngineConfig:
        return self._deployment.config

    @property
    def deployment(self) -> Deployment:
        """The engine and what it was built from, for tools that look inside."""
        return self._deployment

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's generation config recommends, for `generate` without parameters."""
        return SamplingParams(**self._deployment.default_sampling)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Finish all prompts; results in their order. Raises `InvalidRequest` before anything runs."""
        listed = _prompts(prompts)
        params = sampling_params or self.get_default_sampling_params()
        each = [params] * len(listed) if isinstance(params, SamplingParams) else list(params)
        if len(each) != len(listed):
            raise InvalidRequest(
                f"sampling_params holds {len(each)} entries for {len(listed)} prompts; give one or one each.",
                "sampling_params",
            )
        results = self._finish([self._request(*pair) for pair in zip(listed, each, strict=True)])
        for prompt, result in zip(listed, results, strict=True):
            content = _content(prompt)
            result.prompt = content if isinstance(content, str) else None
        return results

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        add_generation_prompt: bool = True,
        chat_template: str | None = None,
    ) -> list[RequestOutput]:
        """The same for conversations, rendered with the model's (or the given) chat template."""
        conversations = [messages] if messages and isinstance(messages[0], dict) else list(messages)
        prompts: list[Prompt] = [
            self._render(conversation, add_generation_prompt, chat_template)  # type: ignore[arg-type]
            for conversation in conversations
        ]
        return self.generate(prompts, sampling_params)

    def stream(
        self, prompt: Prompt | Messages, sampling_params: SamplingParams | None = None
    ) -> Iterator[Output]:
        """Outputs of one prompt, or of one conversation, as they come."""
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], dict):
            prompt = self._render(prompt, True, None)
        request = self._request(prompt, sampling_params or self.get_default_sampling_params())  # type: ignore[arg-type]
        yield from self._run([request])

    def beam_search(self, prompts: object, params: object) -> NoReturn:
        """vLLM's method. Raises `InvalidRequest`, saying what to do instead."""
        raise InvalidRequest(f"beam_search: {NO_BEAM_SEARCH}", "beam_search")

    # --- from prompts to requests -------------------------------------------------------------

    def _render(self, messages: Messages, add_generation_prompt: bool, template: str | None) -> list[int]:
        tokenizer = self._deployment.tokenizer
        text = render(
            tokenizer, messages, add_generation_prompt=add_generation_prompt, chat_template=template
        )
        return tokenizer.encode(text, add_special_tokens=False)

    def _request(self, prompt: Prompt, params: SamplingParams) -> Request:
        content = _content(prompt)
        tokenizer, max_model_len = self._deployment.tokenizer, self._deployment.max_model_len
        ids = tokenizer.encode(content) if isinstance(content, str) else content
        ids = truncate_prompt(ids, params.truncate_prompt_tokens, max_model_len)
        predicted = predicted_ids(params, tokenizer, max_model_len)
        request = Request(str(next(self._ids)), ids, params, monotonic(), predicted_token_ids=predicted)
        self._deployment.engine.check(request)
        return request

    # --- running ------------------------------------------------------------------------------

    def _finish(self, requests: list[Request]) -> list[RequestOutput]:
        lossy_rule = self._deployment.lossy_rule
        results = {request.request_id: _empty_output(request, lossy_rule) for request in requests}
        for output in self._run(requests):
            results[output.request_id].add(output)
        for result in results.values():
            self._decode_logprobs(result)
        return list(results.values())

    def _run(self, requests: list[Request]) -> Iterator[Output]:
        """Step until all are done; on any way out, nothing of them stays in the engine."""
        engine = self._deployment.engine
        pending = list(reversed(requests))
        open_outputs = {request.request_id: request.params.n for request in requests}
        try:
            while open_outputs:
                while pending and engine.has_room_for(pending[-1]):
                    engine.add(pending.pop())
                try:
                    outputs = engine.step().outputs
                except Exception as error:
                    engine.fail(error)
                    raise
                for output in outputs:
                    if output.finish_reason is not None:
                        open_outputs[output.request_id] -= 1
                        if not open_outputs[output.request_id]:
                            del open_outputs[output.request_id]
                    yield output
        finally:
            for request_id in open_outputs:
                engine.abort(request_id)

    def _decode_logprobs(self, result: RequestOutput) -> None:
        text_of = self._deployment.tokenizer.token_text
        for entries in [result.prompt_logprobs, *(output.logprobs for output in result.outputs)]:
            for entry in entries or []:
                for token, value in (entry or {}).items():
                    entry[token] = Logprob(value.logprob, value.rank, text_of(token))  # type: ignore[index]


def _prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several: a list of ids is one, a list of anything else several."""
    if isinstance(prompts, str | Mapping) or (prompts and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _content(prompt: Prompt) -> str | list[int]:
    if isinstance(prompt, Mapping):
        prompt = prompt.get("prompt_token_ids") or prompt.get("prompt") or []
    if isinstance(prompt, str):
        return prompt
    if not all(isinstance(token, int) for token in prompt):
        raise InvalidRequest("prompt must be a text or a list of token ids.", "prompt")
    return list(prompt)


def _empty_output(request: Request, lossy_rule: str | None) -> RequestOutput:
    outputs = [CompletionOutput(index) for index in range(request.params.n)]
    return RequestOutput(request.request_id, None, request.prompt_token_ids, outputs, lossy_rule=lossy_rule)
