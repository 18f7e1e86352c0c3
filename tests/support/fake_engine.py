"""An engine without a model: it writes a script, one byte per token, several tokens per step.

It has the methods of the real one that the server uses, and handles for tests: a gate that lets single steps
through, steps that fail, and a list of what was aborted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Semaphore

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from specserve.errors import InvalidRequest, Overloaded
from specserve.text.parts import Parts
from specserve.text.pieces import BYTE_ALPHABET
from specserve.text.stream import TextStream
from specserve.text.tokenizer import Tokenizer
from specserve.types import (
    DraftStats,
    FinishedStats,
    Logprob,
    Logprobs,
    Output,
    Request,
    SpecDecodeMetrics,
    StepOutputs,
    StepStats,
)

EOS = 256
VOCAB = 257
TEMPLATE = """{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}> {% endif %}"""
SCRIPT = "Grüße! A fox ran."


def byte_tokenizer() -> Tokenizer:
    """Token id = byte value; 256 is the end token, and special."""
    spelled = {byte: letter for letter, byte in BYTE_ALPHABET.items()}
    backend = tokenizers.Tokenizer(models.BPE({spelled[byte]: byte for byte in range(256)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["</s>"])
    return Tokenizer(Parts(backend, {"eos_token": "</s>"}, TEMPLATE), "bytes")


@dataclass
class _Sequence:
    request: Request
    index: int
    script: list[int]
    stream: TextStream
    spec: SpecDecodeMetrics | None
    output: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class FakeEngine:
    """`script(request, index)` is the text of a choice; its end token follows. `block` tokens per step."""

    def __init__(
        self,
        script: Callable[[Request, int], str] = lambda _request, _index: SCRIPT,
        *,
        block: int = 3,
        max_waiting: int = 64,
        num_spec_tokens: int | None = None,
        num_cached: int = 0,
    ) -> None:
        self.tokenizer = byte_tokenizer()
        self.script = script
        self.block = block
        self.max_waiting = max_waiting
        self.num_spec_tokens = num_spec_tokens
        self.num_cached = num_cached
        self.gate: Semaphore | None = None  # a step waits for it
        self.step_error: BaseException | None = None  # raised by the next step
        self.fail_error: BaseException | None = None  # raised by `fail`
        self.requests: list[Request] = []  # all that were added
        self.aborted: list[str] = []
        self.num_steps = 0
        self.running: dict[str, list[_Sequence]] = {}

    @property
    def has_work(self) -> bool:
        return bool(self.running)

    def check(self, request: Request) -> None:
        if not request.prompt_token_ids:
            raise InvalidRequest("prompt must hold at least one token.", "prompt")
        if any(not 0 <= token < VOCAB for token in request.prompt_token_ids):
            raise InvalidRequest("prompt holds a token id outside the vocabulary.", "prompt")
        if request.priority:
            raise InvalidRequest("priority needs --scheduling-policy priority.", "priority")

    def snapshot(self) -> StepStats:
        return StepStats(num_running=len(self.running), kv_cache_usage=len(self.running) / 64)

    def add(self, request: Request) -> None:
        if sum(map(len, self.running.values())) + request.params.n > self.max_waiting:
            raise Overloaded(f"{self.max_waiting} sequences are waiting; try again later.")
        self.requests.append(request)
        self.running[request.request_id] = [self._sequence(request, at) for at in range(request.params.n)]

    def _sequence(self, request: Request, index: int) -> _Sequence:
        params = request.params
        stream = TextStream(
            self.tokenizer,
            request.prompt_token_ids,
            stop=params.stop_strings,
            include_stop=params.include_stop_str_in_output,
            skip_special_tokens=params.skip_special_tokens,
        )
        spec = None if self.num_spec_tokens is None else SpecDecodeMetrics(self.num_spec_tokens)
        return _Sequence(request, index, [*self.script(request, index).encode(), EOS], stream, spec)

    def abort(self, request_id: str) -> list[FinishedStats]:
        self.aborted.append(request_id)
        open_ones = [s for s in self.running.pop(request_id, []) if s.finish_reason is None]
        return [self._stats(s, "abort") for s in open_ones]

    def step(self) -> StepOutputs:
        if self.gate is not None:
            self.gate.acquire()
        self.num_steps += 1
        error, self.step_error = self.step_error, None
        if error is not None:
            raise error
        stats = StepStats(num_rows=1)
        outputs = [
            self._advance(sequence, stats)
            for sequences in self.running.values()
            for sequence in sequences
            if sequence.finish_reason is None
        ]
        self._drop_finished()
        stats.num_generation_tokens = sum(len(output.token_ids) for output in outputs)
        stats.finished = [output.stats for output in outputs if output.stats is not None]
        stats.num_running = len(self.running)
        return StepOutputs(outputs, stats)

    def fail(self, error: BaseException) -> list[Output]:
        if self.fail_error is not None:
            raise self.fail_error
        outputs = [
            Output(name, s.index, [], "", finish_reason="error", stats=self._stats(s, "error"))
            for name, sequences in self.running.items()
            for s in sequences
            if s.finish_reason is None
        ]
        self.running.clear()
        return outputs

    def _advance(self, sequence: _Sequence, stats: StepStats) -> Output:
        is_first = not sequence.output
        new: list[int] = []
        for _ in range(self.block):
            self._emit(sequence, new)
            if sequence.finish_reason is not None:
                break
        if sequence.spec is not None and self.num_spec_tokens:
            drafted = self.block - 1
            kept = len(new) - 1
            stats.drafts.append(DraftStats(drafted, kept, 0))
            sequence.spec.record(stats.drafts[-1])
        return self._output(sequence, new, is_first)

    def _emit(self, sequence: _Sequence, new: list[int]) -> None:
        params = sequence.request.params
        token = sequence.script[len(sequence.output) % len(sequence.script)]
        sequence.output.append(token)
        new.append(token)
        if token == EOS and not params.ignore_eos:
            sequence.finish_reason = "stop"
            return
        if (stop := sequence.stream.feed(token)) is not None:
            sequence.finish_reason, sequence.stop_reason = "stop", stop
        elif token in (params.stop_token_ids or ()):
            sequence.finish_reason, sequence.stop_reason = "stop", token
        elif params.max_tokens is not None and len(sequence.output) >= params.max_tokens:
            sequence.finish_reason = "length"

    def _output(self, sequence: _Sequence, new: list[int], is_first: bool) -> Output:
        params, is_done = sequence.request.params, sequence.finish_reason is not None
        text = sequence.stream.take()
        return Output(
            sequence.request.request_id,
            sequence.index,
            new,
            text + sequence.stream.finish() if is_done else text,
            logprobs=None if params.logprobs is None else [_entry(t, params.logprobs) for t in new],
            prompt_logprobs=self._prompt_logprobs(sequence) if is_first and not sequence.index else None,
            finish_reason=sequence.finish_reason,
            stop_reason=sequence.stop_reason,
            num_cached_tokens=self.num_cached,
            spec_decode_metrics=sequence.spec if is_done else None,
            stats=self._stats(sequence, sequence.finish_reason or "") if is_done else None,
        )

    def _prompt_logprobs(self, sequence: _Sequence) -> list[Logprobs | None] | None:
        num_top = sequence.request.params.prompt_logprobs
        if num_top is None:
            return None
        return [None, *(_entry(token, num_top) for token in sequence.request.prompt_token_ids[1:])]

    def _stats(self, sequence: _Sequence, reason: str) -> FinishedStats:
        arrival = sequence.request.arrival
        return FinishedStats(
            finish_reason=reason,
            arrival=arrival,
            first_scheduled=arrival + 1,
            first_token=arrival + 2,
            last_token=arrival + 4,
            num_prompt_tokens=len(sequence.request.prompt_token_ids),
            num_generation_tokens=len(sequence.output),
            num_cached_tokens=self.num_cached,
            num_preemptions=0,
            max_tokens=sequence.request.params.max_tokens,
            n=sequence.request.params.n,
        )

    def _drop_finished(self) -> None:
        for name in [name for name, s in self.running.items() if all(one.finish_reason for one in s)]:
            del self.running[name]


def _entry(token: int, num_top: int) -> Logprobs:
    """The chosen token is the third best; letters before it are better."""
    others = {ord("a") + at: Logprob(-0.25 * (at + 1), at + 1) for at in range(num_top)}
    return {token: Logprob(-0.75, 3)} | {t: v for t, v in others.items() if t != token}
