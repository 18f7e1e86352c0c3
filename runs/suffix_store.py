"""What the suffix drafter costs with a million tokens in its store: `runs/suffix-store.sh FILE.jsonl ...`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter_ns
from typing import Any

from workers import moment

from specserve.bench.report import machine
from specserve.draft.suffix import Options, SuffixDrafter, make_stores
from specserve.draft.suffix_store import Stores
from specserve.models import find_model
from specserve.ops.native import find_library
from specserve.ops.suffix import make_forest
from specserve.text.tokenizer import Tokenizer
from specserve.types import Ask, AskBatch, Commit, CommitBatch

NUM_TOKENS, NUM_STEPS = 1_000_000, 3000
TEXT_LENGTH = 400  # tokens of a remembered text
OPTIONS = Options(suffix_decoding_max_memory=2**30)


def microseconds(do: Callable[[], Any]) -> float:
    began = perf_counter_ns()
    do()
    return (perf_counter_ns() - began) / 1e3


def report(name: str, samples: list[float]) -> None:
    ordered = sorted(samples)
    p99, worst = ordered[len(ordered) * 99 // 100], ordered[-1]
    mean = sum(samples) / len(samples)
    print(f"{name:32} {mean:9.2f} {median(samples):9.2f} {p99:9.2f} {worst:9.2f}")


def read_tokens(paths: tuple[str, ...]) -> list[int]:
    """All prompts, shuffled, one after the other: a line has a `prompt`, or several as `turns`."""
    tokenizer = Tokenizer.load(find_model("smollm2-135m").path)
    lines = [json.loads(line) for path in paths for line in Path(path).read_text("utf-8").splitlines()]
    Random(0).shuffle(lines)
    prompts = ["\n".join(line["turns"]) if "turns" in line else line["prompt"] for line in lines]
    tokens = [token for prompt in prompts for token in tokenizer.encode(prompt)]
    if len(tokens) < NUM_TOKENS + NUM_STEPS + 20:
        raise SystemExit(
            f"These files hold {len(tokens):,} tokens, and a little over {NUM_TOKENS:,} are needed."
        )
    return tokens


def fill(stores: Stores, tokens: list[int]) -> list[float]:
    """Microseconds per token of each text."""
    times = []
    for start in range(0, len(tokens), TEXT_LENGTH):
        place, text = stores.start(""), tokens[start : start + TEXT_LENGTH]
        times.append(microseconds(partial(stores.append, place, text)) / len(text))
        stores.finish(place)
    return times


def main(*paths: str) -> None:
    tokens = read_tokens(paths)
    indexed, rest = tokens[:NUM_TOKENS], iter(tokens[NUM_TOKENS:])
    forest = make_forest(OPTIONS.suffix_decoding_max_tree_depth, find_library())
    stores = make_stores(OPTIONS, forest)
    assert stores is not None
    drafter = SuffixDrafter(OPTIONS, forest, stores)
    print(json.dumps({**machine(), **moment(), "indexed": len(indexed)}))
    print(f"{'microseconds':32} {'mean':>9} {'median':>9} {'p99':>9} {'worst':>9}")
    report("a token, many at once", fill(stores, indexed))
    print(f"bytes per token: {forest.num_bytes / len(indexed):.1f}")

    text = list(islice(rest, 20))
    drafter.observe(CommitBatch([Commit(-1, 0, len(text) - 1, 0, text, num_prompt=20)]))
    place, asks = stores.start(""), AskBatch([Ask(-1, text, 8, 0.0, 0)])
    one, steps, guesses = [], [], 0
    for token in islice(rest, NUM_STEPS):
        text.append(token)
        one.append(microseconds(partial(stores.append, place, [token])))
        steps.append(microseconds(partial(drafter.propose, asks)))
        guesses += bool(drafter.propose(asks).tokens[0])
    report("a token, alone", one)
    report("a proposal, and its token twice", steps)
    print(f"proposals with guesses: {guesses / len(steps):.0%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
