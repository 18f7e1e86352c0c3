"""Logits processors for tests, by `module:function` as a user names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specserve.types import SamplingParams


def no_repeats(params: SamplingParams) -> Callable[[list[int], list[int], Tensor], Tensor] | None:
    """No token follows the same token twice; `{"no_repeats": n}` looks back n tokens, prompt included."""
    num = (params.extra_args or {}).get("no_repeats")
    if num is None:
        return None
    if not isinstance(num, int):
        raise ValueError("no_repeats must be an integer.")

    def process(prompt: list[int], output: list[int], logits: Tensor) -> Tensor:
        logits[(prompt + output)[-num:]] = -torch.inf
        return logits

    return process


def alternate(params: SamplingParams) -> Callable[[list[int], Tensor], Tensor] | None:
    """Even tokens at even places, odd ones at odd places: one misplaced guess changes everything after it."""
    if not (params.extra_args or {}).get("alternate"):
        return None

    def process(output: list[int], logits: Tensor) -> Tensor:
        changed = torch.full_like(logits, -torch.inf)
        changed[len(output) % 2 :: 2] = logits[len(output) % 2 :: 2]
        return changed

    return process


def breaks(params: SamplingParams) -> Any:
    """Wrong in the way that is named, in the row behind `after` tokens of output (0)."""
    extra = params.extra_args or {}
    if "breaks" not in extra:
        return None
    wrong = {"shape": lambda _: torch.zeros(3), "type": lambda _: None, "error": _fails}[extra["breaks"]]
    after = extra.get("after", 0)
    return lambda output, logits: wrong(logits) if len(output) == after else logits


def _fails(logits: Tensor) -> Tensor:
    logits[::2] = torch.nan  # on its way
    raise ZeroDivisionError


NOT_CALLABLE = 7
