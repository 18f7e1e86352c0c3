"""Every sampling parameter on every one of the 1 + k rows, each row seeing the guesses before it.

The order: allowed_token_ids, logit_bias, min_tokens; penalties; bad_words; processors of others; division by
temperature; min_p, top-k, top-p. What a row becomes depends on its own sequence only, so plain decoding and
verification agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specserve.ops import Ops
from specserve.sampling.counts import Ints, TokenCounts
from specserve.sampling.failure import Failure, nothing_allowed
from specserve.sampling.processors import RequestLogitsProcessor, apply
from specserve.sampling_params import SamplingParams


class SequenceSampling:
    """One sequence's resolved parameters and what must be remembered of its text; built at admission.

    `stop_ids` are all ids that `min_tokens` forbids. Greedy sequences ignore temperature, top-k, top-p and
    min_p, nothing else. Ids outside the vocabulary are dropped.
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        prompt_token_ids: Sequence[int],
        stop_ids: frozenset[int],
        bad_words_ids: list[list[int]],
        vocab_size: int,
        processors: Sequence[RequestLogitsProcessor] = (),
    ) -> None:
        self.temperature = params.effective_temperature
        self.top_k = 0 if params.is_greedy else max(params.top_k, 0)
        self.top_p = 1.0 if params.is_greedy else params.top_p
        self.min_p = 0.0 if params.is_greedy else params.min_p
        self.repetition = params.repetition_penalty
        self.frequency = params.frequency_penalty
        self.presence = params.presence_penalty
        self.min_tokens = params.min_tokens
        bias = {token: value for token, value in (params.logit_bias or {}).items() if token < vocab_size}
        allowed = params.allowed_token_ids
        self.allowed = None if allowed is None else _tensor(allowed, vocab_size)
        self.bias_ids = _tensor(bias, vocab_size)
        self.bias = torch.tensor([bias[token] for token in self.bias_ids.tolist()], dtype=torch.float32)
        self.stop_ids = _tensor(stop_ids, vocab_size)
        self.bad_words = [word for word in bad_words_ids if word and word[-1] < vocab_size]
        is_repetition = self.repetition != 1.0
        self.counts: TokenCounts | None = None
        if is_repetition or self.frequency or self.presence:
            self.counts = TokenCounts(prompt_token_ids if is_repetition else (), vocab_size)
        self.truncates = bool(0 < self.top_k < vocab_size or self.top_p < 1.0 or self.min_p > 0.0)
        self.masks = bool(allowed is not None or bias or (self.min_tokens and len(self.stop_ids)))
        self.processors = tuple(processors)
        self.prompt_token_ids = prompt_token_ids
        self.needs_processing = bool(
            self.masks or self.counts or self.bad_words or self.processors or self.truncates
        )
        self.may_forbid_all = bool(allowed is not None or self.bad_words or self.processors)
        self.divides = self.temperature not in (0.0, 1.0)

    @property
    def changes_logits(self) -> bool:
        """False where `process` leaves this sequence's rows untouched."""
        return self.needs_processing or self.divides


def _tensor(ids: Iterable[int], vocab_size: int) -> Tensor:
    return torch.tensor(sorted({token for token in ids if 0 <= token < vocab_size}), dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The rows of one sequence: 1 + len(draft) of them from `first_row`. `output_token_ids` is a live view of
    its true output; ids in `draft` may lie outside the vocabulary."""

    first_row: int
    sampling: SequenceSampling
    output_token_ids: Sequence[int]
    draft: Sequence[int]

    @property
    def end_row(self) -> int:
        return self.first_row + 1 + len(self.draft)


def process(
    ops: Ops, logits: Tensor, groups: Sequence[RowGroup], failures: dict[int, Failure] | None = None
) -> Tensor:
    """`logits` [R, V] float32 made final: row i of a group as if output + draft[:i] had been generated.

    Works in place and returns what to use. For random sequences the result is log p up to a constant; rows of
    sequences that ask for nothing are left untouched. Where processors of others broke or nothing is allowed
    goes into `failures`, by the group's number; without it that is raised.
    """
    asking = [group for group in groups if group.sampling.needs_processing]
    if asking:
        for group in asking:
            if group.sampling.masks:
                _mask(logits[group.first_row : group.end_row], group)
        logits = _penalize(ops, logits, [group for group in asking if group.sampling.counts is not None])
        _ban(logits, [group for group in asking if group.sampling.bad_words])
        _customize(logits, groups, failures)
        _find_empty(logits, groups, failures)
    logits = _temper(ops, logits, groups)
    return _truncate(ops, logits, [group for group in asking if group.sampling.truncates])


def _mask(rows: Tensor, group: RowGroup) -> None:
    """allowed_token_ids, logit_bias, min_tokens on the rows [n, V] of one group, in place."""
    sampling = group.sampling
    if sampling.allowed is not None:
        allowed = sampling.allowed.to(rows.device)
        kept = rows[:, allowed]
        rows.fill_(-torch.inf)
        rows[:, allowed] = kept
    if len(sampling.bias):
        rows[:, sampling.bias_ids.to(rows.device)] += sampling.bias.to(rows.device)
    num_early = sampling.min_tokens - len(group.output_token_ids)
    if num_early > 0 and len(sampling.stop_ids):
        _forbid_stop(rows[:num_early], sampling.stop_ids.to(rows.device))


def _forbid_stop(rows: Tensor, stop_ids: Tensor) -> None:
    """Stop ids become impossible, except in a row that allows nothing else."""
    kept = rows[:, stop_ids]
    rows[:, stop_ids] = -torch.inf
    is_empty = rows.amax(dim=1) == -torch.inf
    if is_empty.any():
        rows[is_empty.nonzero(), stop_ids] = kept[is_empty]


def _penalize(ops: Ops, logits: Tensor, groups: Sequence[RowGroup]) -> Tensor:
    if not groups:
        return logits
    num_rows = logits.shape[0]
    repetition, frequency, presence = [1.0] * num_rows, [0.0] * num_rows, [0.0] * num_rows
    parts: list[tuple[Ints, Ints, Ints]] = []
    for group in groups:
        sampling = group.sampling
        assert sampling.counts is not None
        rows, ids, counts = sampling.counts.entries(group.output_token_ids, group.draft)
        parts.append((rows + group.first_row, ids, counts))
        for row in range(group.first_row, group.end_row):
            repetition[row], frequency[row] = sampling.repetition, sampling.frequency
            presence[row] = sampling.presence
    entries = [torch.from_numpy(np.concatenate(column)) for column in zip(*parts, strict=True)]
    return ops.penalize(logits, *entries, repetition, frequency, presence)


def _ban(logits: Tensor, groups: Sequence[RowGroup]) -> None:
    """bad_words: the last id of a word is impossible where the text ends with the ids before it."""
    rows: list[int] = []
    ids: list[int] = []
    for group in groups:
        for row, token in _banned(group):
            rows.append(row)
            ids.append(token)
    if rows:
        logits[torch.tensor(rows, device=logits.device), torch.tensor(ids, device=logits.device)] = -torch.inf


def _banned(group: RowGroup) -> Iterator[tuple[int, int]]:
    """(row, id) pairs. Only output and drafts count as text, the prompt does not."""
    words = group.sampling.bad_words
    output = group.output_token_ids
    num_past = min(len(output), max(len(word) for word in words) - 1)
    text = [*output[len(output) - num_past :], *group.draft]
    for place in range(1 + len(group.draft)):
        past = text[: num_past + place]
        for word in words:
            prefix = word[:-1]
            if not prefix or past[-len(prefix) :] == prefix:
                yield group.first_row + place, word[-1]


def _customize(logits: Tensor, groups: Sequence[RowGroup], failures: dict[int, Failure] | None) -> None:
    for number, group in enumerate(groups):
        sampling = group.sampling
        if not sampling.processors:
            continue
        rows = logits[group.first_row : group.end_row]
        failure = apply(
            sampling.processors, rows, sampling.prompt_token_ids, group.output_token_ids, group.draft
        )
        if failure is None:
            continue
        if failures is None:
            raise failure.error
        failures[number] = failure


def _find_empty(logits: Tensor, groups: Sequence[RowGroup], failures: dict[int, Failure] | None) -> None:
    """Rows where nothing is allowed are made even: rules that look ahead want a distribution."""
    for number, group in enumerate(groups):
        if not group.sampling.may_forbid_all:
            continue
        rows = logits[group.first_row : group.end_row]
        empty = (rows.amax(dim=1) == -torch.inf).nonzero().flatten()  # a NaN is the model's and not meant
        if not len(empty):
            continue
        rows[empty] = 0.0
        failure = nothing_allowed(int(empty[0]))
        if failures is None:
            raise failure.error
        if number not in failures or failure.row < failures[number].row:
            failures[number] = failure


def _temper(ops: Ops, logits: Tensor, groups: Sequence[RowGroup]) -> Tensor:
    if not any(group.sampling.divides for group in groups):
        return logits
    temperatures = [1.0] * logits.shape[0]
    for group in groups:
        for row in range(group.first_row, group.end_row):
            temperatures[row] = group.sampling.temperature
    return ops.temper(logits, temperatures)


def _truncate(ops: Ops, logits: Tensor, groups: Sequence[RowGroup]) -> Tensor:
    if not groups:
        return logits
    num_rows = logits.shape[0]
    top_k, top_p, min_p = [0] * num_rows, [1.0] * num_rows, [0.0] * num_rows
    for group in groups:
        sampling = group.sampling
        for row in range(group.first_row, group.end_row):
            top_k[row], top_p[row], min_p[row] = sampling.top_k, sampling.top_p, sampling.min_p
    return ops.truncate(logits, top_k, top_p, min_p)
