"""What a drafter costs a step in which it guesses nothing, k = 64.

    python runs/unmatched_steps.py [--rounds 16] [--class int8]

Text at a high temperature hardly repeats. The drafters take turns within one text: before each step the next
is put into the engine, and asked at the step's end. Counted are steps of one row after which it had no
guess. Each sees only every fourth step and catches up with the tokens between.
"""

from __future__ import annotations

import argparse
import json
from itertools import cycle
from random import Random
from statistics import median, quantiles
from time import monotonic

from turns import MOST, NONE, Contestant, contestants, load
from workers import moment

from specserve.bench.report import machine
from specserve.engine.build import Deployment
from specserve.types import Request, SamplingParams

DRAFTERS = {
    "ngram 2-4": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4},
    "suffix": {"method": "suffix"},
    "suffix, alone": {"method": "suffix", "suffix_decoding_cache": "off"},
}
INPUT_LEN, OUTPUT_LEN = 256, 384

Times = dict[str, list[tuple[float, float]]]  # by drafter: ms of a step, and of it drafting


def write(deployment: Deployment, everyone: dict[str, Contestant], seed: int, times: Times) -> None:
    """One text, its prompt of random ids."""
    engine, random = deployment.engine, Random(seed)
    prompt = [random.randrange(1000, 40_000) for _ in range(INPUT_LEN)]
    params = SamplingParams(
        temperature=2.0, seed=seed, max_tokens=OUTPUT_LEN, ignore_eos=True, detokenize=False
    )
    engine.add(Request("text", prompt, params, monotonic()))
    names = list(everyone)
    random.shuffle(names)
    for name in cycle(names):
        engine.drafter = everyone[name].drafter
        stats = engine.step().stats
        if not engine.has_work:
            break
        [seq] = engine.scheduler.running
        if seq.output and stats.num_rows == 1 and not seq.draft:
            times[name].append((1e3 * stats.step_seconds, 1e3 * stats.draft_seconds))
    for one in everyone.values():
        one.drafter.forget([seq.seq_id])


def show(times: Times) -> None:
    print(f"{'k = 64':16} {'steps':>6} {'ms':>7} {'quartiles':>15} {'to none':>8} {'ms of drafting':>15}")
    for name, found in times.items():
        low, middle, high = quantiles([step for step, _ in found], n=4)
        ratio = middle / median(step for step, _ in times[NONE])
        drafting = median(draft for _, draft in found)
        print(f"{name:16} {len(found):6} {middle:7.3f} {low:7.3f} {high:7.3f} {ratio:8.3f} {drafting:15.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--class", dest="weight_class", default="auto")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--num-threads", type=int)
    options = parser.parse_args()
    deployment = load(options.model, options.weight_class, options.num_threads)
    drafters = {name: {**raw, "num_speculative_tokens": MOST} for name, raw in DRAFTERS.items()}
    everyone = contestants(deployment.config, drafters)
    times: Times = {name: [] for name in everyone}
    for seed in range(options.rounds):
        write(deployment, everyone, seed, times)
    show(times)
    print(json.dumps({**machine(), **moment(), "class": options.weight_class}))


if __name__ == "__main__":
    main()
