"""One reply, whole or as a stream of chunks, from a job's outputs.

Pure: no I/O and no clock, so every shape can be tested with lists. Chunks are built by hand around one
`dumps` of the choice, or where nothing but the text changes, of the text: a validated model per chunk would
cost more than the tokens in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specserve.draft.config_methods import PREDICTION
from specserve.sampling_params import TRANSFER
from specserve.server import figures
from specserve.server.choices import Choice, Form, completion, delta, message
from specserve.server.jobs import Job
from specserve.server.schema import ChatBody
from specserve.server.served import Served
from specserve.server.wire import dumps
from specserve.types import Output, SourceCounts, SpecDecodeMetrics

DONE = "data: [DONE]\n\n"
_MARK = "\0"  # stands for the text


class Reply:
    """State of one reply. Either `whole`, or `start`, then `chunks` until `is_done`, then `end`."""

    def __init__(self, job: Job, served: Served) -> None:
        body, options = job.body, job.body.stream_options
        self._job = job
        self._served = served
        self._is_chat = isinstance(body, ChatBody)
        self._form = Form.of(job, served)
        self._choices = {
            (request.request_id, index): Choice(at * job.params.n + index, job.prompts[at], self._form)
            for at, request in enumerate(job.requests)
            for index in range(job.params.n)
        }
        self._interval = max(body.stream_interval or 1, served.stream_interval)
        self._is_usage_continuous = served.forces_usage or bool(options and options.continuous_usage_stats)
        self._has_usage = served.forces_usage or bool(options and options.include_usage)
        self._asks_for_speculation = job.is_single and body.speculation is not None
        self._has_timings = job.is_single and bool(body.timings or body.timings_per_token)
        self._num_prompt = sum(len(request.prompt_token_ids) for request in job.requests)
        self._is_text_only = not (self._form.shows_tokens or self._is_usage_continuous)
        self._frames: dict[Choice, tuple[str, str]] = {}  # what stands around the text
        self._num_completion = 0
        self._num_cached: dict[str, int] = {}  # by prompt
        self._predicted = SourceCounts() if body.prediction is not None else None
        self._num_open = len(self._choices)
        self._last: Output | None = None
        kind = _object(self._is_chat, job.is_stream)
        self._head = {"id": job.reply_id, "object": kind, "created": job.created, "model": job.model}
        if served.lossy_rule is not None:
            self._head["lossy_rule"] = served.lossy_rule
        self._prefix = f"data: {dumps(self._head)[:-1]},"

    @property
    def is_done(self) -> bool:
        """Every choice has ended."""
        return not self._num_open

    # --- whole --------------------------------------------------------------------------------

    def whole(self, outputs: Sequence[Output]) -> dict[str, Any]:
        """The body, from all outputs."""
        for output in outputs:
            self._count(output).hold(output)
        build = message if self._is_chat else completion
        choices = list(self._choices.values())
        shown = [build(choice, choice.take(), self._form) | self._transfer(choice) for choice in choices]
        prompt = self._form.prompt_fields(choices[0]) if self._is_chat else {}
        body = {**self._head, "choices": shown, "usage": self._usage, **prompt}
        body |= self._only_transfer()
        return body | self._metrics(outputs[-1]) | self._timings(outputs[-1])

    # --- stream -------------------------------------------------------------------------------

    def start(self) -> bytes:
        """A chat begins with a chunk that names the role."""
        if not self._is_chat:
            return b""
        role = {"role": self._form.role, "content": self._form.prefix}
        chunks = []
        for choice in self._choices.values():
            first = {"index": choice.index, "delta": role, "logprobs": None, "finish_reason": None}
            more = self._form.prompt_fields(choice) if choice.index == 0 else {}
            chunks.append(self._chunk([first], more))
        return "".join(chunks).encode()

    def chunks(self, outputs: Sequence[Output]) -> bytes:
        """One chunk per choice that has something to show."""
        frames = []
        for output in outputs:
            choice = self._count(output)
            choice.hold(output)
            if choice.is_due(self._interval):
                is_alike = self._is_text_only and not (choice.is_first or output.finish_reason)
                frames.append(self._text_frame(choice) if is_alike else self._frame(choice, output))
        self._last = outputs[-1]
        return "".join(frames).encode()

    def end(self) -> bytes:
        """The usage, if it was asked for, and the mark of the end."""
        if not self._has_usage:
            return DONE.encode()
        more = {"usage": self._usage, **self._metrics(self._last)}
        return (self._chunk([], more) + DONE).encode()

    @staticmethod
    def error(body: dict[str, Any]) -> bytes:
        """The end of a stream that went wrong; its status has been sent long ago."""
        return f"data: {dumps(body)}\n\n{DONE}".encode()

    def _frame(self, choice: Choice, last: Output) -> str:
        build = delta if self._is_chat else completion
        shown = build(choice, choice.take(), self._form) | self._transfer(choice)
        return self._chunk([shown], self._last_words(last) if last.finish_reason is not None else {})

    def _text_frame(self, choice: Choice) -> str:
        """The same, from the second chunk on until the last, when only the text differs."""
        parts = self._frames.get(choice)
        if parts is None:
            build = delta if self._is_chat else completion
            frame = self._chunk([build(choice, Output("", choice.index, [], _MARK), self._form)], {})
            at = frame.index(dumps(_MARK), len(self._prefix))
            parts = self._frames[choice] = frame[:at], frame[at + len(dumps(_MARK)) :]
        return parts[0] + dumps(choice.take().text) + parts[1]

    def _chunk(self, choices: list[dict[str, Any]], more: dict[str, Any]) -> str:
        if choices and self._has_usage:
            more = {**more, "usage": self._usage if self._is_usage_continuous else None}
        tail = f",{dumps(more)[1:]}" if more else "}"
        return f'{self._prefix}"choices":{dumps(choices)}{tail}\n\n'

    # --- both ---------------------------------------------------------------------------------

    def _count(self, output: Output) -> Choice:
        """Add an output to the figures; return its choice."""
        choice = self._choices[output.request_id, output.index]
        if output.prompt_logprobs is not None:  # the first choice's alone: all have one prompt
            for sibling in range(self._job.params.n):
                self._choices[output.request_id, sibling].prompt_logprobs = output.prompt_logprobs
        if self._form.shows_output:
            self._num_completion += len(output.token_ids)
        if output.index == 0 and output.token_ids:  # the others hit the first one's pages, not the cache
            self._num_cached[output.request_id] = output.num_cached_tokens
        if output.finish_reason is not None:
            self._num_open -= 1
            choice.transfer = output.kv_transfer_params
            self._count_predicted(output.spec_decode_metrics)
        return choice

    def _count_predicted(self, spec: SpecDecodeMetrics | None) -> None:
        if self._predicted is not None and spec is not None and PREDICTION in spec.by_source:
            self._predicted.include(spec.by_source[PREDICTION])

    @property
    def _usage(self) -> dict[str, Any]:
        num_cached = sum(self._num_cached.values()) if self._served.shows_cached_tokens else None
        return figures.usage(self._num_prompt, self._num_completion, num_cached, self._predicted)

    def _metrics(self, last: Output | None) -> dict[str, Any]:
        if last is None or not (self._served.reports_speculation or self._asks_for_speculation):
            return {}
        spec = last.spec_decode_metrics if self._job.is_single else None
        return {"metrics": {"speculative_decoding": figures.speculation(spec)} if spec is not None else None}

    def _last_words(self, output: Output) -> dict[str, Any]:
        """Beside a choice's end in a stream; what speculation did is with the usage, if that is to come."""
        metrics = self._metrics(output) if self._asks_for_speculation and not self._has_usage else {}
        return metrics | self._timings(output) | self._only_transfer()

    def _only_transfer(self) -> dict[str, Any]:
        """Of a reply with one choice, beside it as in vLLM's; of others, in each choice."""
        transfer = next(iter(self._choices.values())).transfer if self._job.is_single else None
        return {TRANSFER: transfer} if transfer else {}

    def _transfer(self, choice: Choice) -> dict[str, Any]:
        return {TRANSFER: choice.transfer} if choice.transfer and not self._job.is_single else {}

    def _timings(self, last: Output) -> dict[str, Any]:
        if not self._has_timings or last.stats is None:
            return {}
        return {"timings": figures.timings(last.stats, last.spec_decode_metrics)}


def _object(is_chat: bool, is_stream: bool) -> str:
    if not is_chat:
        return "text_completion"
    return "chat.completion.chunk" if is_stream else "chat.completion"
