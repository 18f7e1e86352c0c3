"""What rounding costs: a weight class against float32 of the same weights, token by token.

    specserve bench fidelity [MODEL] --dataset-path FILE --classes auto int8:8 auto::float32

Greedy answers of the float32 class are fed to both (teacher forcing), and at each answer token the two
distributions are compared: the mean of KL(float32 || class) in nats, its 99th percentile, and how often both
put the same token first. Rows run in the engine's own runner, so what is measured is what is served; a row's
bits do not depend on the chunk it is in, so it need not be decoded alone.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from specserve.bench.dataset import read_lines
from specserve.bench.report import check_file, machine, write_json
from specserve.config.bench import FidelityFlags
from specserve.config.engine import engine_config
from specserve.config.options import from_mapping
from specserve.engine.build import Deployment, build
from specserve.errors import ConfigError
from specserve.llm import LLM
from specserve.models.runner import logits_in_parts
from specserve.ops.native import WeightClass
from specserve.types import Batch, SamplingParams

CLASSES = ("auto", *get_args(WeightClass))
NUM_TOGETHER = 16  # answers generated at a time


@dataclass(frozen=True, slots=True)
class Sample:
    """A rendered prompt and its answer, as token ids; the end token, where it came, is the last."""

    prompt: list[int]
    answer: list[int]


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Over the answers' tokens; KL in nats, `top1` the share of tokens that both put first."""

    num_tokens: int
    mean_kl: float
    p99_kl: float
    top1: float


@dataclass(frozen=True, slots=True)
class Variant:
    """A weight class, written CLASS[:BITS[:CACHE]]: `int8`, `auto:8`, `auto::float32`."""

    weights: str
    activation_bits: int | None = None
    kv_cache_dtype: str = "auto"

    @property
    def options(self) -> dict[str, Any]:
        """The engine's options that choose it."""
        key = "quantization" if self.weights in ("int8", "int4") else "dtype"
        rest = {"activation_bits": self.activation_bits, "kv_cache_dtype": self.kv_cache_dtype}
        return {key: self.weights, **rest}

    def __str__(self) -> str:
        cache = "" if self.kv_cache_dtype == "auto" else self.kv_cache_dtype
        return f"{self.weights}:{self.activation_bits or ''}:{cache}".rstrip(":")


def parse_variant(text: str) -> Variant:
    """Raises `ConfigError`; the cache's type is checked where the engine's options are."""
    weights, bits, cache, *more = [*text.split(":"), "", ""]
    if weights not in CLASSES or any(more) or bits not in ("", "8", "16"):
        raise ConfigError(
            f"classes: {text!r} is not CLASS[:BITS[:CACHE]], CLASS in {', '.join(CLASSES)}, BITS 8 or 16."
        )
    return Variant(weights, int(bits) if bits else None, cache or "auto")


# --- the measure ----------------------------------------------------------------------------------


def compare(target: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """For each row of logits [R, V]: KL(target || other), float64, and whether both have one argmax."""
    log_p, log_q = target.double().log_softmax(-1), other.double().log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1), target.argmax(-1) == other.argmax(-1)


def summarise(rows: Sequence[tuple[Tensor, Tensor]]) -> Fidelity:
    """What `compare` said, part by part."""
    kl, agrees = (torch.cat(column) for column in zip(*rows, strict=True))
    p99 = kl.sort().values[round(0.99 * (len(kl) - 1))]
    return Fidelity(len(kl), kl.mean().item(), p99.item(), agrees.double().mean().item())


def answer_logits(deployment: Deployment, sample: Sample) -> Iterator[Tensor]:
    """Logits that the answer's tokens are drawn from, in parts [R, V] of at most 64 rows.

    Writes over the cache's first pages without asking: nothing else may be in the engine, and no prompt may
    be looked up in it afterwards.
    """
    runner, limits = deployment.engine.runner, deployment.scheduler
    ids = (sample.prompt + sample.answer)[:-1]
    first = len(sample.prompt) - 1
    for start in range(0, len(ids), limits.max_num_batched_tokens):
        end = min(start + limits.max_num_batched_tokens, len(ids))
        runner.forward(_one_sequence(ids, start, end, limits.page_size), [])
        yield from logits_in_parts(runner, max(first - start, 0), end - start)


def _one_sequence(ids: list[int], start: int, end: int, page_size: int) -> Batch:
    """Rows [start, end) of a sequence whose pages are the cache's first: slot = position."""
    span = array("q", range(start, end))
    pages = list(range(-(-end // page_size)))
    return Batch(array("q", ids[start:end]), span, span, [0, end - start], [end], [pages], page_size)


def reference_logits(deployment: Deployment, samples: Sequence[Sample]) -> list[Tensor]:
    """Kept, so that the float32 class need not stay loaded: vocabulary x 4 bytes per answer token."""
    return [torch.cat(list(answer_logits(deployment, sample))) for sample in samples]


def measure(targets: Sequence[Tensor], others: Iterable[Iterable[Tensor]]) -> Fidelity:
    """`others` has the same rows as `targets`, sample by sample, cut into parts of any size."""
    rows = []
    for target, parts in zip(targets, others, strict=True):
        row = 0
        for part in parts:
            rows.append(compare(target[row : row + len(part)], part))
            row += len(part)
        assert row == len(target)
    return summarise(rows)


# --- prompts and answers --------------------------------------------------------------------------


def read_prompts(path: Path) -> list[str]:
    """One JSON object per line with the text under "prompt". Raises `ConfigError`."""
    return [str(line["prompt"]) for line in read_lines(path, "prompt")]


def answer(llm: LLM, prompts: Sequence[str], num_tokens: int, output_len: int) -> list[Sample]:
    """Greedy answers to the first prompts, in order, until they have `num_tokens` tokens; the last is cut.

    Raises `ConfigError` when the prompts do not suffice.
    """
    params = SamplingParams(temperature=0.0, max_tokens=output_len)
    samples: list[Sample] = []
    left = num_tokens
    for first in range(0, len(prompts), NUM_TOGETHER):
        chats = [[{"role": "user", "content": text}] for text in prompts[first : first + NUM_TOGETHER]]
        for result in llm.chat(chats, params):
            ids = result.outputs[0].token_ids[:left]
            if ids:
                samples.append(Sample(result.prompt_token_ids, ids))
            left -= len(ids)
        if not left:
            return samples
    raise ConfigError(
        f"num_tokens={num_tokens}: the answers to all {len(prompts)} prompts have {num_tokens - left}; "
        "ask for fewer, or raise output_len.",
        "num_tokens",
    )


def load_reference(model: str, **options: Any) -> LLM:
    """The float32 class. Without a prefix cache, so that `answer_logits` may have the pages."""
    return LLM(model, dtype="float32", enable_prefix_caching=False, max_num_seqs=NUM_TOGETHER, **options)


def load_variant(model: str, variant: Variant, samples: Sequence[Sample], **options: Any) -> Deployment:
    """With a cache as long as the longest sample."""
    longest = max(len(sample.prompt) + len(sample.answer) for sample in samples)
    limits = {"max_model_len": longest, "max_num_seqs": 1, "enable_prefix_caching": False, "seed": 0}
    return build(engine_config({"model": model, **limits, **variant.options, **options}), is_offline=True)


# --- the command ----------------------------------------------------------------------------------


def run(values: Mapping[str, Any]) -> None:
    """Measure and print; the last line is JSON. Raises any `UserError`."""
    flags = from_mapping(FidelityFlags, values)
    variants = [parse_variant(text) for text in flags.classes]
    check_file(flags.json)
    samples, targets = _reference(flags)
    print(f"{len(samples)} prompts, {flags.num_tokens} answer tokens")
    print(f"{'class':20} {'weights MB':>10} {'mean KL':>9} {'p99 KL':>9} {'top-1':>8}")
    results = [_result(flags, variant, samples, targets) for variant in variants]
    figures = {"results": results, "config": {**asdict(flags), **machine()}}
    print(json.dumps(figures))
    write_json(flags.json, figures)


def _reference(flags: FidelityFlags) -> tuple[list[Sample], list[Tensor]]:
    prompts = read_prompts(Path(str(flags.dataset_path)))
    llm = load_reference(flags.model, num_threads=flags.num_threads)
    samples = answer(llm, prompts, flags.num_tokens, flags.output_len)
    return samples, reference_logits(llm.deployment, samples)


def _result(
    flags: FidelityFlags, variant: Variant, samples: Sequence[Sample], targets: Sequence[Tensor]
) -> dict[str, Any]:
    other = load_variant(flags.model, variant, samples, num_threads=flags.num_threads)
    found = measure(targets, (answer_logits(other, sample) for sample in samples))
    num_bytes = other.engine.runner.model.num_bytes
    print(
        f"{variant!s:20} {num_bytes / 1e6:10.1f} {found.mean_kl:9.2e} {found.p99_kl:9.2e} "
        f"{100 * found.top1:6.2f} %",
        flush=True,
    )
    return {"class": str(variant), "weight_bytes": num_bytes, **asdict(found)}
