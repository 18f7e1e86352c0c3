"""Tokens per step and decode speed of drafters without weights, against no speculation in the same run.

    python runs/tokens_per_step.py QUESTIONS.jsonl --lines FILE [--classes auto int8] [--limit 3]

QUESTIONS are in Spec-Bench's format; the first turn is asked, in the model's chat template. All drafters
answer a question in turn, greedily and alone, and then the next one; who begins changes. When a question is
done its lines go to FILE, and a run that finds lines of its own there goes on behind them. What is timed are
the engine's steps after the prompt's, drafting included. A drafter that remembers outputs has those of the
questions before.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from turns import NONE, answer_all, contestants, load, remember
from workers import moment

from specserve.bench.report import machine
from specserve.draft.config_spelled import DEFAULT, NGRAM, SUFFIX
from specserve.text.chat import render
from specserve.text.tokenizer import Tokenizer

DRAFTERS: dict[str, Mapping[str, Any]] = {
    "ngram 3": NGRAM,
    "ngram 8": {**NGRAM, "num_speculative_tokens": 8},
    "suffix 8": SUFFIX,
    "default chain": DEFAULT,
}
ONE_OF_SIX = ("translation", "summarization", "qa", "rag", "math_reasoning")  # a group each; the rest is chat
KEYS = ("group", "category")  # a table each
TYPICAL = "let each step take what steps of as many rows take in the median, where a machine has other work"

Line = Mapping[str, Any]  # an `Answer` and whose it is
Table = dict[str, dict[str, tuple[float, float]]]  # by group and drafter: tokens per step, speed against none


@dataclass(frozen=True, slots=True)
class Question:
    number: int
    category: str
    text: str


def group_of(category: str) -> str:
    return category if category in ONE_OF_SIX else "chat"


def read_questions(path: Path, limit: int | None) -> list[Question]:
    """All, or the first `limit` of each group."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    groups: dict[str, list[Question]] = {}
    for line in lines:
        question = Question(line["question_id"], line["category"], line["turns"][0])
        groups.setdefault(group_of(question.category), []).append(question)
    return [question for group in groups.values() for question in group[:limit]]


def prompt_of(question: Question, tokenizer: Tokenizer) -> list[int]:
    messages = [{"role": "user", "content": question.text}]
    text = render(tokenizer, messages, add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False)


def read_lines(path: Path) -> list[Line]:
    """Answers of earlier runs; their first lines are about the runs."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    answers = (line for line in map(json.loads, lines) if "question" in line)
    return [{**line, "group": group_of(line["category"])} for line in answers]


# --- asking ---------------------------------------------------------------------------------------


def ask_all(
    weight_class: str, questions: Sequence[Question], done: Sequence[Line], options: argparse.Namespace
) -> None:
    """What nobody has answered yet in this class."""
    deployment = load(options.model, weight_class, options.num_threads)
    everyone = contestants(deployment.config, options.drafters)
    own = [line for line in done if line["class"] == weight_class and line["drafter"] in everyone]
    for line in own:
        remember(everyone[line["drafter"]], line["ids"])
    answered = {line["question"] for line in own}
    left = [question for question in questions if question.number not in answered]
    for turn, question in enumerate(left):
        prompt = prompt_of(question, deployment.tokenizer)
        answers = answer_all(deployment, everyone, prompt, options.output_len, turn)
        about = {"class": weight_class, "question": question.number, "category": question.category}
        with options.lines.open("a", encoding="utf-8") as file:
            for name, found in answers.items():
                print(json.dumps({**about, "drafter": name, **asdict(found)}), file=file)


# --- the tables -----------------------------------------------------------------------------------


def typical(lines: Sequence[Line]) -> dict[int, float]:
    """Median milliseconds of a step by its number of rows."""
    by_rows: dict[int, list[float]] = {}
    for line in lines:
        for rows, ms in zip(line["rows"], line["ms"], strict=True):
            by_rows.setdefault(rows, []).append(ms)
    return {rows: median(found) for rows, found in sorted(by_rows.items())}


def at_typical_cost(lines: Sequence[Line]) -> list[Line]:
    cost = typical(lines)
    return [{**line, "ms": [cost[rows] for rows in line["rows"]]} for line in lines]


def total(lines: Iterable[Line], key: str) -> float:
    return sum(sum(line[key]) for line in lines)


def table(lines: Sequence[Line], key: str, names: Sequence[str]) -> Table:
    """The means over all values of `key` come last."""
    found: Table = {}
    for value in dict.fromkeys(line[key] for line in lines):
        own = {name: [ln for ln in lines if ln[key] == value and ln["drafter"] == name] for name in names}
        plain = total(own[NONE], "ms")
        found[value] = {
            name: (len_of(answers, "ids") / len_of(answers, "rows"), plain / total(answers, "ms"))
            for name, answers in own.items()
        }
    rows = list(found.values())
    found["mean"] = {
        name: (mean(row[name][0] for row in rows), mean(row[name][1] for row in rows)) for name in names
    }
    return found


def len_of(lines: Sequence[Line], key: str) -> int:
    """Tokens or steps; the first token is the prompt's."""
    return sum(len(line[key]) for line in lines) - len(lines) * (key == "ids")


def show(title: str, lines: Sequence[Line], names: Sequence[str], keys: Sequence[str]) -> dict[str, Any]:
    """Print a table for each of `keys`: tokens per step / speed against none."""
    tables = {key: table(lines, key, names) for key in keys}
    print(f"\n{title:18}" + "".join(f"{name:>18}" for name in names if name != NONE))
    for rows in tables.values():
        for value, row in rows.items():
            cells = (f"{row[name][0]:10.2f} / {row[name][1]:.2f}" for name in names if name != NONE)
            print(f"{value:18}" + "".join(f"{cell:>18}" for cell in cells))
        print()
    cost = typical(lines)
    print("ms of a step by rows: " + ", ".join(f"{rows} {ms:.2f}" for rows, ms in cost.items()))
    return {**tables, "step_ms": cost}


def show_drafting(lines: Sequence[Line], names: Sequence[str]) -> dict[str, float]:
    found = {
        name: median(ms for ln in lines if ln["drafter"] == name for ms in ln["draft_ms"]) for name in names
    }
    print("ms of drafting, median: " + ", ".join(f"{name} {ms:.3f}" for name, ms in found.items()))
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--lines", type=Path, required=True, help="where answers are kept")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--classes", nargs="+", default=["auto", "int8", "bfloat16"])
    parser.add_argument("--limit", type=int, help="questions per group")
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--num-threads", type=int)
    parser.add_argument(
        "--drafters", type=json.loads, default=DRAFTERS, help="JSON: name to speculative_config"
    )
    parser.add_argument("--typical", action="store_true", help=TYPICAL)
    parser.add_argument("--json", type=Path, help="write the tables there")
    return parser.parse_args()


def main() -> None:
    options = parse()
    questions = read_questions(options.questions, options.limit)
    numbers, names = {question.number for question in questions}, [NONE, *options.drafters]
    about = {**machine(), **moment(), "drafters": options.drafters, "output_len": options.output_len}
    with options.lines.open("a", encoding="utf-8") as file:
        print(json.dumps(about), file=file)
    tables = {}
    for weight_class in options.classes:
        ask_all(weight_class, questions, read_lines(options.lines), options)
        own = [line for line in read_lines(options.lines) if line["class"] == weight_class]
        own = [line for line in own if line["question"] in numbers and line["drafter"] in names]
        drafting = show_drafting(own, names)
        timed = at_typical_cost(own) if options.typical else own
        shown = show(weight_class, timed, names, KEYS)
        tables[weight_class] = {**shown, "draft_ms": drafting}
    print(json.dumps(about))
    if options.json:
        options.json.write_text(json.dumps({"tables": tables, **about}) + "\n")


if __name__ == "__main__":
    main()
