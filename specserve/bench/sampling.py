"""Milliseconds of the sampling ops and of the rules for drawn drafts, native against reference.

    python -m specserve.bench.sampling [--vocab-size N] [--threads N] [--repeats N]

A cell is the fastest of many calls: on a shared machine the only figure that says something about the op. The
logits are made up: wide as SmolLM2's, with a few likely ids. A copy of the rows, which ops that work in place
need, is not counted.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from specserve.ops import Ops, reference_ops
from specserve.ops.native import find_library, make_pool
from specserve.ops.native_sampling import with_native_sampling
from specserve.ops.philox import TARGET
from specserve.sampling.guess import guess
from specserve.types import Ask, Draft, DraftProbs, RowRng, SamplingRows
from specserve.verify import block, coupled, standard

ROWS = (1, 5, 16, 32)
Call = Callable[[Ops, Tensor], object]


def make_logits(num_rows: int, vocab_size: int) -> Tensor:
    generator = torch.Generator().manual_seed(num_rows)
    logits = torch.randn(num_rows, vocab_size, generator=generator) * 3.5
    likely = torch.randint(0, vocab_size, (num_rows, 20), generator=generator)
    return logits.scatter_(1, likely, torch.linspace(14, 20, 20).expand(num_rows, 20))


def make_draft(logits: Tensor) -> Draft:
    """Sequences of up to five rows, their guesses drawn from a q near p."""
    generator = torch.Generator().manual_seed(0)
    q = (logits + torch.randn(logits.shape, generator=generator) * 0.3).softmax(1)
    tokens = torch.multinomial(q, 1, generator=generator)[:, 0].tolist()
    ends = [(first, min(first + 4, len(q) - 1)) for first in range(0, len(q), 5)]
    return Draft(
        [tokens[first:end] for first, end in ends], [DraftProbs(q[first:end]) for first, end in ends]
    )


def calls(num_rows: int, vocab_size: int) -> dict[str, Call]:
    """One call per way of sampling. `refused`: sequences of five rows whose first guess is wrong; those of
    the rules have guesses that are `drawn`, and are kept as it comes."""
    n = num_rows
    draft = make_draft(make_logits(n, vocab_size))
    num_drafts = len(draft.tokens)
    sampling, rng = SamplingRows([1.0] * num_drafts), RowRng([*range(num_drafts)], [9] * num_drafts)
    asks = [Ask(i, range(9), 1, 1.0, i) for i in range(n)]
    keys = list(range(n)), list(range(n)), TARGET
    lengths = [min(5, n - first) for first in range(0, n, 5)]
    wrong = [[-1] * (length - 1) for length in lengths]
    first_keys = [1.0] * len(lengths), *(key[: len(lengths)] for key in keys[:2]), TARGET
    return {
        "greedy": lambda ops, x: ops.draw(x, [0.0] * n, *keys),
        "draw": lambda ops, x: ops.draw(x, [1.0] * n, *keys),
        "refused": lambda ops, x: ops.accept(x, wrong, *first_keys),
        "temperature": lambda ops, x: ops.temper(x, [0.7] * n),
        "top_p": lambda ops, x: ops.truncate(x, [0] * n, [0.95] * n, [0.0] * n),
        "top_k": lambda ops, x: ops.truncate(x, [50] * n, [1.0] * n, [0.0] * n),
        "min_p": lambda ops, x: ops.truncate(x, [0] * n, [1.0] * n, [0.05] * n),
        "top_p, draw": lambda ops, x: ops.draw(
            ops.truncate(x, [0] * n, [0.95] * n, [0.0] * n), [1.0] * n, *keys
        ),
        "logprobs 0": lambda ops, x: ops.logprobs(x, keys[0], 0),
        "logprobs 5": lambda ops, x: ops.logprobs(x, keys[0], 5),
        "draw a guess": lambda ops, x: guess(ops, "probabilistic", x, asks, [0] * n),
        "coupled guess": lambda ops, x: guess(ops, "coupled", x, asks, [0] * n),
        "coupled": lambda ops, x: coupled.verify(ops, x, draft, sampling, rng),
        "drawn, standard": lambda ops, x: standard.verify(ops, x, draft, sampling, rng),
        "drawn, block": lambda ops, x: block.verify(ops, x, draft, sampling, rng),
    }


def fastest(call: Call, ops: Ops, logits: Tensor, repeats: int) -> float:
    """Milliseconds; each call on a fresh copy of the logits."""
    times = []
    for _ in range(repeats):
        copy = logits.clone()
        began = perf_counter()
        call(ops, copy)
        times.append(perf_counter() - began)
    return 1e3 * min(times)


def measure(tables: dict[str, Ops], vocab_size: int, repeats: int) -> dict[str, dict[str, list[float]]]:
    """By table and call: milliseconds at each of `ROWS`. Tables alternate: a mood of the machine hits all."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in tables}
    for num_rows in ROWS:
        logits = make_logits(num_rows, vocab_size)
        for label, call in calls(num_rows, vocab_size).items():
            for name, ops in tables.items():
                found[name].setdefault(label, []).append(fastest(call, ops, logits, repeats))
    return found


def print_table(found: dict[str, dict[str, list[float]]]) -> None:
    print(f"ms, fastest call, {', '.join(map(str, ROWS))} rows:")
    for label in next(iter(found.values())):
        cells = []
        for name, by_call in found.items():
            cells.append(" ".join(f"{value:8.3f}" for value in by_call[label]) + f"  {name}")
        print(f"{label:15s} | " + " | ".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specserve.bench.sampling", description=__doc__)
    parser.add_argument("--vocab-size", type=int, default=49_152)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=40)
    options = parser.parse_args()
    tables = {"reference": reference_ops()}
    library = find_library()
    if library is not None:
        pool = make_pool(library, options.threads)
        tables[pool.instruction_set] = with_native_sampling(reference_ops(), pool)
    found = measure(tables, options.vocab_size, options.repeats)
    print_table(found)
    circumstances: dict[str, Any] = {
        "rows": ROWS,
        "vocab_size": options.vocab_size,
        "threads": options.threads,
        "machine": platform.machine(),
    }
    print(json.dumps({"milliseconds": found, "config": circumstances}))


if __name__ == "__main__":
    main()
