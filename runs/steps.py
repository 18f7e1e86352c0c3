"""Target steps of specserve's runner, any number of rows at a time.

As a program it is a worker (workers.py) for the experiments beside it: `python steps.py MODEL CLASS`.
"""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Sequence

from workers import answer

from specserve.bench.fidelity import parse_variant
from specserve.config.engine import engine_config
from specserve.engine.build import Deployment, build
from specserve.types import Batch

NUM_CONTEXT = 1024


def load(model: str, weight_class: str) -> Deployment:
    limits = {"max_model_len": NUM_CONTEXT, "max_num_seqs": 1, "seed": 0}
    options = {"model": model, **limits, **parse_variant(weight_class).options}
    return build(engine_config(options), is_offline=True)


def step_ms(
    deployment: Deployment, tokens: Sequence[int], start: int, first_wanted: int, repeats: int
) -> list[float]:
    """Milliseconds of the same step, again and again, once for nothing first.

    Tokens are one sequence's, at positions from `start` on; logits of rows from `first_wanted` on. What lies
    before is in the cache's first pages from earlier steps.
    """
    page_size = deployment.scheduler.page_size
    end = start + len(tokens)
    span, pages = array("q", range(start, end)), list(range(-(-end // page_size)))
    batch = Batch(array("q", tokens), span, span, [0, len(tokens)], [end], [pages], page_size)
    wanted = list(range(first_wanted, len(tokens)))
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        deployment.engine.runner.forward(batch, wanted)
        times.append(1e3 * (time.perf_counter() - began))
    return times[1:]


def main(model: str, weight_class: str) -> None:
    deployment = load(model, weight_class)
    answer({"step": lambda **given: step_ms(deployment, **given)})


if __name__ == "__main__":
    main(*sys.argv[1:])
