"""Greedy tokens per second, specserve over HTTP against llama.cpp in its own process, without speculation.

    python runs/serving_against_llamacpp.py [--rounds 7] [--json FILE]

llama.cpp runs two ways: its C functions with an argmax in NumPy, and the bindings' `Llama.generate`. In each
round everything runs once, in turn, on prompts nobody has seen; the prompt's time counts on both sides.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median, quantiles

from workers import Worker, moment

from specserve.bench.report import machine
from specserve.bench.streams import Server, stream
from specserve.config.engine import engine_config
from specserve.models import find_model

Run = Callable[[list[list[int]]], float]  # prompts -> tokens per second


def prompts(seed: int, options: argparse.Namespace) -> list[list[int]]:
    random = Random(seed)
    return [random.choices(range(1000, 40000), k=options.input_len) for _ in range(options.streams)]


def served(port: int, given: list[list[int]], num_tokens: int) -> float:
    began = time.perf_counter()
    return stream(port, given, num_tokens) / (time.perf_counter() - began)


def run(options: argparse.Namespace) -> tuple[dict[str, list[float]], str]:
    num_tokens, many = options.output_len, f"specserve, {options.streams} streams"
    with ExitStack() as stack:
        file = str(find_model(options.model).path)
        peer = stack.enter_context(Worker("llamacpp.py", [file, options.attention]))
        server = stack.enter_context(Server(engine_config({"model": options.model})))
        runs: dict[str, Run] = {
            "llama.cpp": lambda given: peer.ask("greedy", prompt=given[0], num_tokens=num_tokens),
            "llama.cpp, generate": lambda given: peer.ask("generate", prompt=given[0], num_tokens=num_tokens),
            "specserve": lambda given: served(server.port, given[:1], num_tokens),
            many: lambda given: served(server.port, given, num_tokens),
        }
        rates: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(options.rounds + 1):  # the first one is for nothing
            for place, (name, measure) in enumerate(runs.items()):
                rate = measure(prompts(10 * number + place, options))
                rates[name] += [rate] if number else []
        return rates, peer.ask("about")


def ratio(above: Sequence[float], below: Sequence[float]) -> str:
    found = [a / b for a, b in zip(above, below, strict=True)]
    return f"{median(found):6.2f} ({min(found):.2f} to {max(found):.2f})"


def show(rates: dict[str, list[float]]) -> None:
    print(f"{'tokens/s':24} {'median':>8}   quartiles")
    for name, found in rates.items():
        low, middle, high = quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
        print(f"{name:24} {middle:8.1f}   {low:.1f} to {high:.1f}")
    loop, generate, one, many = rates.values()
    print(f"specserve / llama.cpp           {ratio(one, loop)}")
    print(f"specserve / llama.cpp, generate {ratio(one, generate)}")
    print(f"many streams / one              {ratio(many, one)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a GGUF file, or an alias of one")
    parser.add_argument("--input-len", type=int, default=32)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--attention", choices=["flash", "plain"], default="flash", help="llama.cpp's")
    parser.add_argument("--rounds", type=int, default=7, help="a warm-up apart")
    parser.add_argument("--json", type=Path, help="write all rates there")
    options = parser.parse_args()
    before = moment()
    rates, peer = run(options)
    show(rates)
    about = {"llama.cpp": peer, **machine(), **before}
    print(json.dumps(about))
    if options.json:
        options.json.write_text(json.dumps({"tokens_per_s": rates, **about}) + "\n")


if __name__ == "__main__":
    main()
