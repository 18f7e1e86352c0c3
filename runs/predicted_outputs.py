"""Decode speed with predicted outputs: the prediction is the greedy answer itself with one line changed.

    python runs/predicted_outputs.py HumanEval.jsonl [--prompts 164] [--json FILE]

For each prompt the answer comes first, without speculation; then, in turn and in an order that alternates,
once with the prediction and once without. All three must be the same text. One engine, one request at a time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from replies import HEAD, Reply, ask, rate, speed_up_line, speed_ups, tokens_per_step
from workers import moment

from specserve import LLM, SamplingParams
from specserve.bench.report import machine

CHANGED = "# This line was here before somebody changed it."


def changed(text: str) -> str:
    """With the line in the middle replaced, an empty one left out of account."""
    lines = text.split("\n")
    full = [i for i, line in enumerate(lines) if line.strip()]
    lines[full[len(full) // 2] if full else 0] = CHANGED
    return "\n".join(lines)


def params(options: argparse.Namespace, **more: Any) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=options.output_len, **more)


def run(options: argparse.Namespace) -> tuple[list[Reply], list[Reply]]:
    """Replies with the prediction, and without speculation."""
    speculation = {"method": "prediction", "num_speculative_tokens": options.tokens}
    llm = LLM(
        options.model,
        quantization=options.quantization,
        max_model_len=2048,
        max_num_seqs=1,
        speculative_config=speculation,
    )
    off = {"enabled": False}
    found: tuple[list[Reply], list[Reply]] = ([], [])
    lines = options.dataset.read_text().splitlines()[: options.prompts]
    for number, line in enumerate(lines):
        prompt = [{"role": "user", "content": json.loads(line)["prompt"]}]
        answer = ask(llm, prompt, params(options, speculation=off))
        ways = [params(options, prediction=changed(answer.text)), params(options, speculation=off)]
        for way in (0, 1) if number % 2 else (1, 0):
            reply = ask(llm, prompt, ways[way])
            if reply.ids != answer.ids:
                raise SystemExit(f"prompt {number}: another text")
            found[way].append(reply)
    return found


def show(replies: list[Reply], others: list[Reply]) -> dict[str, Any]:
    counts = [reply.metrics.by_source.get("prediction") for reply in replies if reply.metrics]
    drafted = sum(one.num_draft_tokens for one in counts if one)
    accepted = sum(one.num_accepted_draft_tokens for one in counts if one)
    print(f"{len(replies)} prompts, {sum(len(reply.ids) for reply in replies)} tokens")
    print(HEAD)
    print(speed_up_line("prediction", replies, others))
    print(speed_up_line("none", others, others))
    print(f"accepted {accepted}, rejected {drafted - accepted} prediction tokens")
    return {
        "speed_up": rate(replies) / rate(others),
        "speed_up_each": speed_ups(replies, others),
        "tokens_per_step": tokens_per_step(replies),
        "tokens_per_s": [rate(replies), rate(others)],
        "accepted": accepted,
        "rejected": drafted - accepted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dataset", type=Path, help='JSON lines with a "prompt" each')
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--quantization", default="int8")
    parser.add_argument("--prompts", type=int, default=164)
    parser.add_argument("--tokens", type=int, default=16, help="guesses per step")
    parser.add_argument("--output-len", type=int, default=256, help="most tokens of an answer")
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    about = moment()
    figures = show(*run(options)) | machine() | about
    print(json.dumps({key: value for key, value in figures.items() if key != "speed_up_each"}))
    if options.json:
        options.json.write_text(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
