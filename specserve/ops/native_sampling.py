"""The sampling ops on the native side, with the interpreter lock released: the same bits as their references.

Rows on another device are copied to the host where the references do so, and left to them where not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from specserve.ops import Ops, accept, draw, penalties, temper
from specserve.ops.native import Pool


def with_native_sampling(ops: Ops, pool: Pool) -> Ops:
    """`ops` with its sampling functions on the threads of `pool`."""
    native = _Sampling(pool.library, pool.library.Sampler(pool.threads, pool.instruction_set))
    return replace(
        ops,
        penalize=native.penalize,
        temper=native.temper,
        truncate=native.truncate,
        draw=native.draw,
        accept=native.accept,
        logprobs=native.logprobs,
    )


@dataclass(frozen=True, slots=True)
class _Sampling:
    """Methods are those of `Ops`; what they promise stands in the docstrings of `reference`."""

    library: Any
    sampler: Any

    def draw(
        self,
        logits: Tensor,
        temperatures: Sequence[float],
        seeds: Sequence[int],
        indices: Sequence[int],
        purpose: int,
    ) -> Tensor:
        if _is_elsewhere(logits) and not any(temperatures):
            return draw.reference(logits, temperatures, seeds, indices, purpose)
        host = _on_host(logits)
        tokens = self.sampler.draw(*_place(host), temperatures, seeds, indices, purpose)
        return torch.tensor(tokens, dtype=torch.int64, device=logits.device)

    def accept(
        self,
        logits: Tensor,
        drafts: Sequence[Sequence[int]],
        temperatures: Sequence[float],
        seeds: Sequence[int],
        indices: Sequence[int],
        purpose: int,
    ) -> tuple[list[int], list[int]]:
        if _is_elsewhere(logits) and not any(temperatures):
            return accept.reference(logits, drafts, temperatures, seeds, indices, purpose)
        place = _place(_on_host(logits))
        accepted, next_tokens = self.sampler.accept(*place, drafts, temperatures, seeds, indices, purpose)
        return accepted, next_tokens

    def temper(self, logits: Tensor, temperatures: Sequence[float]) -> Tensor:
        if _is_elsewhere(logits):
            return temper.reference(logits, temperatures)
        host = _on_host(logits)
        self.sampler.temper(*_place(host), temperatures)
        return logits if host is logits else logits.copy_(host)

    def truncate(
        self, logits: Tensor, top_k: Sequence[int], top_p: Sequence[float], min_p: Sequence[float]
    ) -> Tensor:
        host = _on_host(logits)
        log_min_p = [math.log(p) if p > 0.0 else -math.inf for p in min_p]
        self.sampler.truncate(*_place(host), top_k, top_p, log_min_p)
        return logits if host is logits else logits.copy_(host)

    def penalize(
        self,
        logits: Tensor,
        rows: Tensor,
        ids: Tensor,
        counts: Tensor,
        repetition: Sequence[float],
        frequency: Sequence[float],
        presence: Sequence[float],
    ) -> Tensor:
        if _is_elsewhere(logits):
            return penalties.reference(logits, rows, ids, counts, repetition, frequency, presence)
        host = _on_host(logits)
        entries = [column.contiguous() for column in (rows, ids, counts)]
        addresses = [column.data_ptr() for column in entries]
        self.library.penalize(*_place(host), len(rows), *addresses, repetition, frequency, presence)
        return logits if host is logits else logits.copy_(host)

    def logprobs(
        self, logits: Tensor, ids: Sequence[int], num_top: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        host = _on_host(logits)
        num_rows, vocab_size = host.shape
        t = min(num_top, vocab_size)
        values = torch.empty(num_rows, 1 + t)
        ranks = torch.empty(num_rows, 1 + t, dtype=torch.int64)
        top_ids = torch.empty(num_rows, t, dtype=torch.int64)
        found = (values, ranks, top_ids)
        self.sampler.logprobs(*_place(host), ids, t, *(tensor.data_ptr() for tensor in found))
        return values[:, 0], ranks, values[:, 1:], top_ids


def _is_elsewhere(logits: Tensor) -> bool:
    return not logits.is_cpu


def _on_host(logits: Tensor) -> Tensor:
    """`logits` itself when it lies in the memory the native side reads: [R, V] float32 without gaps.

    Asking costs a few us, `to` twenty behind a step's native call, though it has nothing to do.
    """
    if logits.is_cpu and logits.dtype is torch.float32 and logits.is_contiguous():
        return logits
    return logits.to("cpu", torch.float32).contiguous()


def _place(logits: Tensor) -> tuple[int, int, int]:
    return logits.data_ptr(), logits.shape[0], logits.shape[1]
