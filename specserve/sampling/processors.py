"""Logits processors of others: functions that change a row before the draw, by name.

A name is an entry point of the group below, or `module:function`. The function gets the request's parameters
and returns what to apply to its rows, or None; the shapes are those of vLLM's request-level processors:

    def new_request(params: SamplingParams) -> RequestLogitsProcessor | None: ...
    def processor(prompt_token_ids: list[int], output_token_ids: list[int], logits: Tensor) -> Tensor: ...

(or without the prompt). A processor sees every row of a verification, each with the guesses before it as if
they were output. Some of those are refused, so what it returns may depend on its arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor

from specserve.errors import ConfigError, InvalidRequest
from specserve.sampling.failure import Failure
from specserve.sampling_params import SamplingParams

GROUP = "specserve.logits_processors"
KEY = "logits_processors"

# (prompt ids, output ids with the guesses before this row, logits [V]) -> logits [V]
RequestLogitsProcessor = Callable[[list[int], list[int], Tensor], Tensor]


class ProcessorError(RuntimeError):
    """A processor raised, or returned what is no row."""


@dataclass(frozen=True, slots=True)
class LogitsProcessor:
    """One that was named at start."""

    name: str
    new_request: Callable[[SamplingParams], Callable[..., Tensor] | None]

    def of_request(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """What this request's rows go through. Raises `InvalidRequest` if the processor refuses it."""
        try:
            made = self.new_request(params)
        except ValueError as error:
            if isinstance(error, InvalidRequest):
                raise
            message = f"The logits processor {self.name!r} refuses extra_args={params.extra_args!r}: {error}"
            raise InvalidRequest(message, "extra_args") from error
        if made is None:
            return None
        call = made if _num_positional(made) != 2 else _without_prompt(made)
        return _checked(self.name, call)


def load_processors(names: Sequence[str]) -> tuple[LogitsProcessor, ...]:
    """Import what is named, in order. Raises `ConfigError`."""
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    return tuple(LogitsProcessor(name, _load(name, installed)) for name in names)


def of_request(processors: Sequence[LogitsProcessor], params: SamplingParams) -> list[RequestLogitsProcessor]:
    """Those that have something to say to this request, in order."""
    return [own for processor in processors if (own := processor.of_request(params)) is not None]


def apply(
    processors: Sequence[RequestLogitsProcessor],
    rows: Tensor,
    prompt: Sequence[int],
    output: Sequence[int],
    draft: Sequence[int],
) -> Failure | None:
    """All rows [1 + len(draft), V] of one sequence, in place, with output + draft[:i] before row i.

    Rows behind a guess outside the vocabulary can never be reached, so nobody needs to understand such an id.
    A processor that breaks ends it at that row: no token may come from there, and the rows behind it stay
    unprocessed.
    """
    for i, (row, text) in enumerate(zip(rows, _texts(output, draft, rows.shape[1]), strict=False)):
        changed = row
        try:
            for processor in processors:
                changed = processor(list(prompt), list(text), changed)
        except ProcessorError as error:
            row.zero_()  # it may have been changed in part; rules that look ahead want a distribution
            return Failure(i, error)
        row.copy_(changed)
    return None


def _texts(output: Sequence[int], draft: Sequence[int], vocab_size: int) -> Iterator[list[int]]:
    text = list(output)
    yield text
    for token in draft:
        if not 0 <= token < vocab_size:
            return
        text.append(token)
        yield text


def _load(name: str, installed: dict[str, EntryPoint]) -> Any:
    if name not in installed and ":" not in name:
        listed = ", ".join(sorted(installed)) or "none"
        raise ConfigError(
            f"{KEY} has {name!r}, which is not installed; installed: {listed}. A function can also be named "
            "as module:function.",
            KEY,
        )
    try:
        made = installed.get(name, EntryPoint(name, name, GROUP)).load()
    except Exception as error:  # whatever the module of somebody else does when it is imported
        raise ConfigError(f"{KEY} has {name!r}, which cannot be imported: {error!r}.", KEY) from error
    if not callable(made):
        raise ConfigError(
            f"{KEY} has {name!r}, which is a {type(made).__name__}; it must be a function that takes the "
            "request's SamplingParams.",
            KEY,
        )
    return made


def _num_positional(function: Callable[..., Any]) -> int:
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty for p in signature(function).parameters.values())


def _without_prompt(function: Callable[[list[int], Tensor], Tensor]) -> RequestLogitsProcessor:
    return lambda _prompt, output, logits: function(output, logits)


def _checked(name: str, function: RequestLogitsProcessor) -> RequestLogitsProcessor:
    """A processor whose mistakes have its name and one type."""

    def call(prompt: list[int], output: list[int], logits: Tensor) -> Tensor:
        try:
            changed = function(prompt, output, logits)
        except Exception as error:
            raise ProcessorError(f"the logits processor {name!r} failed: {error!r}") from error
        if not isinstance(changed, Tensor) or changed.shape != logits.shape:
            got = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
            raise ProcessorError(
                f"the logits processor {name!r} must return a tensor like its row, {tuple(logits.shape)}; "
                f"got {got}"
            )
        return changed.to(torch.float32)

    return call
