"""Drafters over answers that are known already: tokens per step, and the speed that step costs promise.

    python runs/replayed_drafts.py QUESTIONS.jsonl --lines FILE [--drafters JSON] [--step-ms 5.9 6.2 6.5 ...]

FILE is what tokens_per_step.py wrote. No model runs, so a drafter's options are tried in seconds. `--step-ms`
are the milliseconds of a step of 1, 2, 3, ... rows, the host's share included (`specserve bench kernels`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from tokens_per_step import DRAFTERS, KEYS, Line, prompt_of, read_lines, read_questions, show
from turns import NONE, Contestant, contestants

from specserve.config.engine import engine_config
from specserve.models import find_model
from specserve.text.tokenizer import Tokenizer
from specserve.types import Ask, AskBatch, Commit, CommitBatch


def replay(
    one: Contestant, number: int, prompt: Sequence[int], ids: Sequence[int], output_len: int
) -> list[int]:
    """Rows of each step after the prompt's, were `ids` the greedy answer."""
    tokens, rows, num_told = [*prompt, ids[0]], [], 0
    while (known := len(tokens) - len(prompt)) < len(ids):
        commit = Commit(number, num_told, len(tokens) - 1, 0, tokens, num_prompt=len(prompt))
        one.drafter.observe(CommitBatch([commit]))
        num_told = len(tokens) - 1
        limit = min(one.k, output_len - known - 1)
        asks = AskBatch([Ask(number, tokens, limit, 0.0, 0)])
        draft = one.drafter.propose(asks).tokens[0] if limit > 0 else []
        pairs = zip([*draft, None], [*ids[known:], None], strict=False)
        kept = next(place for place, (guess, right) in enumerate(pairs) if guess != right or right is None)
        tokens += ids[known : known + kept + 1]
        rows.append(1 + len(draft))
    one.drafter.forget([number])
    return rows


def cost_of(num_rows: int, step_ms: Sequence[float]) -> float:
    """Beyond the last given cost each further row costs what the last one did."""
    last, slope = len(step_ms), step_ms[-1] - step_ms[-2]
    return step_ms[min(num_rows, last) - 1] + max(0, num_rows - last) * slope


def lines_of(
    name: str, one: Contestant, answers: Sequence[Line], options: argparse.Namespace
) -> Iterator[Line]:
    tokenizer = Tokenizer.load(find_model(options.model).path)
    questions = {question.number: question for question in read_questions(options.questions, None)}
    numbers = count()
    for given in answers:
        prompt = prompt_of(questions[given["question"]], tokenizer)
        rows = replay(one, next(numbers), prompt, given["ids"], options.output_len)
        ms = [cost_of(num_rows, options.step_ms) for num_rows in rows]
        yield {**given, "drafter": name, "rows": rows, "ms": ms}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--lines", type=Path, required=True, help="the answers")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--class", dest="weight_class", default="auto", help="whose answers")
    parser.add_argument("--output-len", type=int, default=128, help="that was asked for")
    parser.add_argument(
        "--drafters", type=json.loads, default=DRAFTERS, help="JSON: name to speculative_config"
    )
    parser.add_argument("--step-ms", type=float, nargs="+", default=[1.0, 1.0])
    return parser.parse_args()


def main() -> None:
    options = parse()
    given: list[dict[str, Any]] = [
        dict(line)
        for line in read_lines(options.lines)
        if line["drafter"] == NONE and line["class"] == options.weight_class
    ]
    everyone = contestants(engine_config({"model": options.model}), options.drafters)
    lines = [line for name, one in everyone.items() for line in lines_of(name, one, given, options)]
    show(f"{len(given)} answers", lines, list(everyone), KEYS)


if __name__ == "__main__":
    main()
