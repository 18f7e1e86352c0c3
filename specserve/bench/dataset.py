"""Questions for benchmarks: Spec-Bench, ShareGPT, HumanEval, JSON lines of one's own, or noise.

Nobody can guess how noise goes on, so `random` shows what speculation costs, never what it gains.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

from specserve.config.bench_serving import RANDOM, DatasetFlags
from specserve.errors import ConfigError
from specserve.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

OUTPUT_LEN, RANDOM_OUTPUT_LEN = 256, 128
SPEC_BENCH_SEED = 0  # of its order, whatever the run's seed: vLLM asks in this order too
SHORTEST, LONGEST_PROMPT, LONGEST = 4, 1024, 2048  # tokens of a ShareGPT turn that is used, as in vLLM
NOISE = (
    "{}, and no drafter can guess how noise goes on: acceptance and speed-up mean nothing here. Measure "
    "speculation on real questions, as with spec_bench."
)


@dataclass(frozen=True, slots=True)
class Question:
    """`ids` is a prompt of random tokens, to be sent as it is; `text` is the same or a user's message.
    `is_chat`: the text is something said to an assistant, so a model's chat template goes around it."""

    text: str
    category: str
    output_len: int
    ids: tuple[int, ...] | None = None
    is_chat: bool = True


def load_questions(flags: DatasetFlags, seed: int, tokenizer: Tokenizer | None) -> list[Question]:
    """In the order in which they are asked. Raises `ConfigError` for a file that cannot be used.

    Without a tokenizer ShareGPT's answers count as 256 tokens, and random prompts are random words.
    """
    if flags.dataset_name == RANDOM:
        logger.warning(NOISE.format("dataset_name=random asks noise"))
        return random_questions(flags, seed, tokenizer)
    is_spec_bench = flags.dataset_name == "spec_bench"
    found = READERS[flags.dataset_name](Path(str(flags.dataset_path)), tokenizer)
    if is_spec_bench and flags.spec_bench_category is not None:
        found = _of_category(found, flags.spec_bench_category)
    if not found:
        raise ConfigError(f"dataset_path={flags.dataset_path!r} holds no question to ask.", "dataset_path")
    output_len = flags.output_len or (flags.spec_bench_output_len if is_spec_bench else None)
    if output_len is not None:
        found = [replace(question, output_len=output_len) for question in found]
    if not flags.disable_shuffle:
        Random(SPEC_BENCH_SEED if is_spec_bench else seed).shuffle(found)
    return _as_many(found, flags)


def random_questions(flags: DatasetFlags, seed: int, tokenizer: Tokenizer | None) -> list[Question]:
    """`num_prompts` prompts of `input_len` tokens each; they share no beginning."""
    if flags.num_prompts < 1:
        raise ConfigError("num_prompts must be at least 1 with dataset_name=random.", "num_prompts")
    random = Random(seed)
    output_len = flags.output_len or RANDOM_OUTPUT_LEN
    found = []
    for _ in range(flags.num_prompts):
        if tokenizer is None:
            text = " ".join(_word(random) for _ in range(flags.input_len))
            found.append(Question(text, RANDOM, output_len, is_chat=False))
        else:
            ids = random_ids(random, tokenizer.vocab_size, flags.input_len)
            found.append(Question(tokenizer.decode(ids), RANDOM, output_len, tuple(ids), is_chat=False))
    return found


def random_ids(random: Random, vocab_size: int, count: int) -> list[int]:
    """Ordinary tokens: special ones lie at the ends of a vocabulary."""
    return random.choices(range(vocab_size // 32, vocab_size // 2), k=count)


def read_lines(path: Path, key: str) -> list[dict[str, Any]]:
    """One JSON object per line, each with `key`. Raises `ConfigError`."""
    found = []
    for number, line in enumerate(_read(path).split("\n"), 1):  # other ends of lines may stand in a text
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            _ = entry[key]
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f'{path}:{number} is no JSON object with a "{key}"; give one such object per line.',
                "dataset_path",
            ) from error
        found.append(entry)
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"dataset_path={str(path)!r} cannot be read ({error}).", "dataset_path") from error


def _spec_bench(path: Path, _: Tokenizer | None) -> list[Question]:
    """The first turn of each question; later turns would need the answer."""
    lines = read_lines(path, "turns")
    if any(not isinstance(line["turns"], list) or not line["turns"] for line in lines):
        raise ConfigError(f'{path}: "turns" must be lists of texts, none of them empty.', "dataset_path")
    return [_question(line["turns"][0], line, "spec_bench") for line in lines]


def _custom(path: Path, _: Tokenizer | None) -> list[Question]:
    return [_question(line["prompt"], line, "custom") for line in read_lines(path, "prompt")]


def _humaneval(path: Path, _: Tokenizer | None) -> list[Question]:
    """Beginnings of functions, which a completion goes on with; a chat gets them as a message."""
    lines = read_lines(path, "prompt")
    return [replace(_question(line["prompt"], {}, "humaneval"), is_chat=False) for line in lines]


def _question(text: Any, line: Mapping[str, Any], default: str) -> Question:
    output_len = line.get("output_tokens")
    if not isinstance(output_len, int) or output_len < 1:
        output_len = OUTPUT_LEN
    return Question(str(text), str(line.get("category", default)), output_len)


def _sharegpt(path: Path, tokenizer: Tokenizer | None) -> list[Question]:
    """First messages; an answer may be as long as the one that was recorded."""
    try:
        conversations = [entry["conversations"] for entry in json.loads(_read(path))]
        pairs = [(str(c[0]["value"]), str(c[1]["value"])) for c in conversations if len(c) >= 2]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f'{path} is no JSON list of objects with "conversations", each a list of objects with a "value".',
            "dataset_path",
        ) from error
    if tokenizer is None:
        return [Question(asked, "sharegpt", OUTPUT_LEN) for asked, _ in pairs]
    found = []
    for asked, said in pairs:
        num_prompt, num_output = len(tokenizer.encode(asked)), len(tokenizer.encode(said))
        is_short = min(num_prompt, num_output) < SHORTEST
        if not is_short and num_prompt <= LONGEST_PROMPT and num_prompt + num_output <= LONGEST:
            found.append(Question(asked, "sharegpt", num_output))
    return found


READERS: Mapping[str, Callable[[Path, Tokenizer | None], list[Question]]] = {
    "spec_bench": _spec_bench,
    "sharegpt": _sharegpt,
    "custom": _custom,
    "humaneval": _humaneval,
}


def _of_category(questions: Sequence[Question], category: str) -> list[Question]:
    found = [question for question in questions if question.category == category]
    if not found:
        known = ", ".join(sorted({question.category for question in questions}))
        raise ConfigError(
            f"spec_bench_category={category!r} has no question; there are {known}.", "spec_bench_category"
        )
    return found


def _as_many(questions: Sequence[Question], flags: DatasetFlags) -> list[Question]:
    """`num_prompts` of them, from the beginning again when there are fewer."""
    count = len(questions) if flags.num_prompts < 1 else flags.num_prompts
    if not flags.oversample:
        count = min(count, len(questions))
    return list(islice(cycle(questions), count))


def _word(random: Random) -> str:
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=3))
