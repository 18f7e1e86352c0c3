"""Milliseconds of a target step of m rows, llama.cpp's weight types against specserve's classes.

    python runs/kernels_against_llamacpp.py [--rounds 15] [--json FILE]

In every round each engine, in a process of its own and in turn, runs a prompt and then steps of m rows after
the same context, with logits for all of them. A ratio is taken within a round, and the median is over rounds:
a change in the machine's mood hits both sides.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median, quantiles

from llamacpp import NUM_CONTEXT, TYPES, quantised
from workers import Worker, moment

from specserve.bench.report import machine
from specserve.models import find_model

Times = dict[str, dict[str, list[float]]]  # engine -> number of rows, or "prompt" -> ms, one per round
PEER, OURS = "llama.cpp", "specserve"


def start_all(options: argparse.Namespace, stack: ExitStack) -> dict[str, Worker]:
    source = find_model(options.model).path
    files = {kind: source if kind == "file" else quantised(source, kind) for kind in options.types}
    workers = {
        f"{PEER} {kind}": Worker("llamacpp.py", [str(file), options.attention])
        for kind, file in files.items()
    }
    workers |= {f"{OURS} {name}": Worker("steps.py", [str(source), name]) for name in options.classes}
    for worker in workers.values():
        stack.enter_context(worker)
    return workers


def run_round(worker: Worker, tokens: Sequence[int], options: argparse.Namespace) -> dict[str, float]:
    """Medians within the round. The prompt leaves the context of the steps behind in the cache."""
    end, context = options.prompt_len, options.context_len
    prompt = worker.ask("step", tokens=tokens[:end], start=0, first_wanted=end - 1, repeats=1)
    found = {"prompt": median(prompt)}
    for m in options.rows:
        given = {"tokens": tokens[context : context + m], "start": context, "first_wanted": 0}
        found[str(m)] = median(worker.ask("step", **given, repeats=options.repeats))
    return found


def run(options: argparse.Namespace) -> tuple[Times, str]:
    tokens = Random(0).choices(range(1000, 40000), k=NUM_CONTEXT)
    columns = [*map(str, options.rows), "prompt"]
    with ExitStack() as stack:
        workers = start_all(options, stack)
        times: Times = {name: {column: [] for column in columns} for name in workers}
        for number in range(options.rounds + 1):  # the first one is for nothing
            names = list(workers)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                found = run_round(workers[name], tokens, options)
                for column, ms in found.items() if number else ():
                    times[name][column].append(ms)
        peers = [worker for name, worker in workers.items() if name.startswith(PEER)]
        return times, peers[0].ask("about") if peers else ""


# --- tables ---------------------------------------------------------------------------------------


def show(title: str, columns: Sequence[str], lines: Mapping[str, Sequence[str]]) -> None:
    print(f"\n{title:28}" + "".join(f"{column:>12}" for column in columns))
    for name, cells in lines.items():
        print(f"{name:28}" + "".join(f"{cell:>12}" for cell in cells))


def spread(samples: Sequence[float]) -> str:
    """Median and half the distance between the quartiles."""
    if len(samples) < 2:
        return f"{samples[0]:.2f}"
    low, middle, high = quantiles(samples, n=4, method="inclusive")
    return f"{middle:.2f}±{(high - low) / 2:.2f}"


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    return median(a / b for a, b in zip(above, below, strict=True))


def ratios(times: Times, name: str, other: Callable[[str], str]) -> list[str]:
    """How many times faster `name` is than the engine that `other` names for a column."""
    return [f"{ratio(times[other(column)][column], times[name][column]):.2f}" for column in times[name]]


def show_all(times: Times) -> None:
    ours = [name for name in times if name.startswith(OURS)]
    peers = [name for name in times if name.startswith(PEER)]
    columns = list(next(iter(times.values())))
    show("ms, rows:", columns, {name: [spread(times[name][c]) for c in columns] for name in times})
    shares = {
        name: [f"{ratio(times[name][c], times[name]['1']):.2f}" for c in columns[:-1]]
        for name in times
        if "1" in times[name]
    }
    show("T(m) / T(1), rows:", columns[:-1], shares)
    best = {column: min(peers, key=lambda name: median(times[name][column])) for column in columns if peers}
    lines: dict[str, list[str]] = {}
    for name in ours if peers else []:
        for peer in peers:
            lines[f"{_short(name)} : {_short(peer)}"] = ratios(times, name, lambda _, peer=peer: peer)
        lines[f"{_short(name)} : best"] = ratios(times, name, best.__getitem__)
    show("times as fast, rows:", columns, lines)
    show("llama.cpp's best type:", columns, {"": [_short(name) for name in best.values()]})


def _short(name: str) -> str:
    return name.split()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a GGUF file, or an alias of one")
    parser.add_argument(
        "--types", nargs="*", default=["file", "Q8_0", "Q4_0", "F16"], choices=["file", *TYPES]
    )
    parser.add_argument("--classes", nargs="*", default=["auto", "int8", "bfloat16", "float32"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 2, 3, 4, 5, 8, 16, 32])
    parser.add_argument("--context-len", type=int, default=256)
    parser.add_argument("--prompt-len", type=int, default=512)
    parser.add_argument("--attention", choices=["flash", "plain"], default="flash", help="llama.cpp's")
    parser.add_argument("--rounds", type=int, default=15, help="a warm-up apart")
    parser.add_argument("--repeats", type=int, default=3, help="of a step, a warm-up apart")
    parser.add_argument("--json", type=Path, help="write all times there")
    options = parser.parse_args()
    before = moment()
    times, peer = run(options)
    show_all(times)
    about = {"llama.cpp": peer, **machine(), **before}
    print(json.dumps(about))
    if options.json:
        options.json.write_text(json.dumps({"ms": times, **about}) + "\n")


if __name__ == "__main__":
    main()
