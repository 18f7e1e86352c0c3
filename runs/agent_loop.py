"""An agent's loop: the same task over five turns, each answer a version of the one before.

    python runs/agent_loop.py HumanEval.jsonl [--limit 10] [--classes auto int8] [--json FILE]

The first turn asks for the function, the others for it again with something changed; the conversation holds
all answers so far. All drafters answer each turn, one right after the other, and all give the same text. One
that remembers outputs has those of the turns and tasks before.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokens_per_step import Line, show, show_drafting
from turns import NONE, Contestant, answer_all, contestants, load
from workers import moment

from specserve.bench.report import machine
from specserve.draft.config_spelled import DEFAULT, NGRAM, SUFFIX
from specserve.engine.build import Deployment
from specserve.text.chat import render

TURNS = (
    "Complete this function. Answer with the whole function.\n\n{prompt}",
    "A test failed: an empty argument is not handled. Answer with the whole function again, mended.",
    "Add a comment above each step. Answer with the whole function again.",
    "Add type annotations to its variables. Answer with the whole function again.",
    "All tests pass. Answer with the final version of the whole function, without comments.",
)
DRAFTERS: dict[str, Mapping[str, Any]] = {
    "ngram 3": NGRAM,
    "suffix 8": SUFFIX,
    "suffix 8, alone": {**SUFFIX, "suffix_decoding_cache": "off"},
    "default chain": DEFAULT,
}


def loop(
    deployment: Deployment, everyone: Mapping[str, Contestant], task: str, number: int, num_tokens: int
) -> Iterator[Line]:
    """Of every turn a line for each drafter."""
    messages: list[dict[str, Any]] = []
    for turn, ask in enumerate(TURNS):
        messages.append({"role": "user", "content": ask.format(prompt=task)})
        text = render(deployment.tokenizer, messages, add_generation_prompt=True)
        prompt = deployment.tokenizer.encode(text, add_special_tokens=False)
        answers = answer_all(deployment, everyone, prompt, num_tokens, number + turn)
        for name, found in answers.items():
            yield {"turn": f"turn {turn + 1}", "task": number, "drafter": name, **asdict(found)}
        messages.append({"role": "assistant", "content": deployment.tokenizer.decode(answers[NONE].ids)})


def run(weight_class: str, tasks: list[str], options: argparse.Namespace) -> dict[str, Any]:
    deployment = load(options.model, weight_class, options.num_threads)
    everyone = contestants(deployment.config, options.drafters)
    lines = [
        line
        for number, task in enumerate(tasks)
        for line in loop(deployment, everyone, task, number, options.output_len)
    ]
    drafting = show_drafting(lines, [*everyone])
    return {**show(weight_class, lines, [*everyone], ["turn"]), "draft_ms": drafting}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tasks", type=Path, help='JSON lines with a "prompt" each')
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--classes", nargs="+", default=["auto", "int8", "bfloat16"])
    parser.add_argument("--limit", type=int, default=10, help="tasks")
    parser.add_argument("--output-len", type=int, default=128, help="most tokens of an answer")
    parser.add_argument("--num-threads", type=int)
    parser.add_argument(
        "--drafters", type=json.loads, default=DRAFTERS, help="JSON: name to speculative_config"
    )
    parser.add_argument("--json", type=Path, help="write the tables there")
    return parser.parse_args()


def main() -> None:
    options, about = parse(), {**machine(), **moment()}
    tasks = [json.loads(line)["prompt"] for line in options.tasks.read_text(encoding="utf-8").splitlines()]
    tables = {name: run(name, tasks[: options.limit], options) for name in options.classes}
    print(json.dumps(about))
    if options.json:
        options.json.write_text(json.dumps({"tables": tables, **about}) + "\n")


if __name__ == "__main__":
    main()
