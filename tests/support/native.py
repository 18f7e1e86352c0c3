"""Runs a network's recorded program over a paged cache, row by row as asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from specserve.engine.runner import NativeRunner
from specserve.models import find_model, load_model
from specserve.models.decoder import Decoder
from specserve.models.weights import PanelMaker
from specserve.ops import reference_ops
from specserve.ops.native import WeightClass, find_library, make_pool
from specserve.ops.program import Limits
from tests.support.paged import deal, make_rows

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
    """As `run_paged`: per prompt the logits of all rows, and features. Sequence i begins at step i."""
    shapes = [replace(shape, dtype=cache_type) for shape in model.layers]
    pages = deal(shapes, [len(prompt) for prompt in prompts], page_size, seed)
    limits = Limits(sum(map(len, prompts)), max(map(len, prompts)), page_size)
    pool = make_pool(library(), num_threads, instruction_set)
    runner = NativeRunner(model, pages.cache, features, pool, limits)
    done = [0] * len(prompts)
    logits: list[list[Tensor]] = [[] for _ in prompts]
    streams: list[list[Tensor]] = [[] for _ in prompts]
    step = 0
    while any(done[i] < len(prompt) for i, prompt in enumerate(prompts)):
        pieces = [
            (i, done[i], min(len(prompt), done[i] + (chunk or len(prompt))))
            for i, prompt in enumerate(prompts)
            if done[i] < len(prompt) and (step >= i or chunk is None)
        ]
        rows = make_rows(prompts, pieces, pages)
        found = runner.forward(rows, list(range(len(rows.ids))))
        for (i, _, end), first, last in zip(pieces, rows.starts, rows.starts[1:], strict=False):
            logits[i].append(found.logits[first:last])
            if found.features is not None:
                streams[i].append(found.features[first:last])
            done[i] = end
        step += 1
    return [torch.cat(parts) for parts in logits], [torch.cat(parts) for parts in streams if parts]
