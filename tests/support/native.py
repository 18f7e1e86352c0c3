"""Packed models, and their recorded programs on a paged cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from specserve.models import find_model, load_model
from specserve.models.decoder import Decoder
from specserve.models.runner import NativeRunner
from specserve.models.weights import PanelMaker
from specserve.ops import reference_ops
from specserve.ops.native import WeightClass, find_library, make_pool
from specserve.ops.program import Limits
from tests.support.paged import Pages, deal, in_chunks, run_steps

CPU = torch.device("cpu")


def library() -> ModuleType:
    found = find_library()
    if found is None:
        pytest.skip("the native kernels are not installed")
    return found


def load_packed(
    path: Path | str, weight_class: WeightClass | None, activation_bits: int | None = None
) -> Decoder:
    maker = PanelMaker(library(), weight_class, activation_bits)
    return load_model(find_model(str(path)), ops=reference_ops(), dtype="float32", device=CPU, maker=maker)


def make_native(
    model: Decoder,
    pages: Pages,
    lengths: Sequence[int],
    *,
    num_threads: int = 1,
    features: Sequence[int] = (),
    instruction_set: str | None = None,
) -> NativeRunner:
    """On the pages' cache, for sequences of these lengths."""
    limits = Limits(sum(lengths), max(lengths), pages.page_size)
    pool = make_pool(library(), num_threads, instruction_set)
    return NativeRunner(model, pages.cache, features, pool, limits)


def deal_for(
    model: Decoder, lengths: Sequence[int], page_size: int, cache_type: torch.dtype, seed: int = 0
) -> Pages:
    return deal([replace(shape, dtype=cache_type) for shape in model.layers], lengths, page_size, seed)


def run_native(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    chunk: int | None = None,
    page_size: int = 8,
    num_threads: int = 1,
    cache_type: torch.dtype = torch.float32,
    features: Sequence[int] = (),
    seed: int = 0,
    instruction_set: str | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """`run_steps` of all rows, by the recorded program."""
    lengths = [len(prompt) for prompt in prompts]
    pages = deal_for(model, lengths, page_size, cache_type, seed)
    runner = make_native(
        model, pages, lengths, num_threads=num_threads, features=features, instruction_set=instruction_set
    )
    return run_steps(runner, prompts, pages, in_chunks(lengths, chunk))
