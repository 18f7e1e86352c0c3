"""llama.cpp's arithmetic and ours by the measure of `specserve bench fidelity`, on the same files.

    python runs/fidelity_llamacpp.py PROMPTS.jsonl [--types file Q8_0 ...] [--num-tokens 4000]

Every file is compared with float32 of two sets of weights: those of the model as it came (rounding the
weights counts) and its own (only the arithmetic counts). F32 with a float32 cache is the control: another
implementation of the same network, nothing rounded. (It goes without flash attention, which would round keys
and values to float16 whatever the cache.)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import llama_cpp
import torch
from llamacpp import TYPES, Peer, quantised
from torch import Tensor
from workers import moment

from specserve.bench.fidelity import (
    Sample,
    Variant,
    answer,
    answer_logits,
    load_reference,
    load_variant,
    measure,
    read_prompts,
    reference_logits,
)
from specserve.bench.report import machine
from specserve.models import find_model

OUTPUT_LEN = 128
Logits = Callable[[Sample], Iterator[Tensor]]


def peer_logits(peer: Peer, sample: Sample) -> Iterator[Tensor]:
    ids = (sample.prompt + sample.answer)[:-1]
    for part in peer.answer_logits(ids, len(sample.prompt) - 1):
        yield torch.from_numpy(part)


def engines(kind: str, file: Path, samples: Sequence[Sample]) -> Iterator[tuple[str, Logits]]:
    """llama.cpp, and specserve where it takes the type over as it is."""
    if kind == "F32":
        exact = Peer(file, flash_attention=False, is_cache_float32=True)
        yield "llama.cpp, float32 cache", partial(peer_logits, exact)
    yield "llama.cpp", partial(peer_logits, Peer(file))
    if kind not in ("F32", "F16"):
        yield "specserve", partial(answer_logits, load_variant(str(file), Variant("auto"), samples))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--model", default="smollm2-135m", help="a GGUF file, or an alias of one")
    parser.add_argument("--types", nargs="+", default=["file", *TYPES], choices=["file", *TYPES])
    parser.add_argument("--num-tokens", type=int, default=4000)
    options = parser.parse_args()
    source = find_model(options.model).path
    llm = load_reference(str(source))
    samples = answer(llm, read_prompts(options.prompts), options.num_tokens, OUTPUT_LEN)
    targets = reference_logits(llm.deployment, samples)
    print(f"{len(samples)} prompts, {options.num_tokens} answer tokens")
    print(f"{'weights':8} {'arithmetic':25} {'against':11} {'mean KL':>9} {'p99 KL':>9} {'top-1':>8}")
    results = []
    for kind in options.types:
        file = source if kind == "file" else quantised(source, kind)
        against = {"the model": targets}
        if kind != "file":
            against["itself"] = reference_logits(load_reference(str(file)).deployment, samples)
        for name, logits in engines(kind, file, samples):
            for what, wanted in against.items():
                found = measure(wanted, map(logits, samples))
                results.append({"weights": kind, "arithmetic": name, "against": what, **asdict(found)})
                print(
                    f"{kind:8} {name:25} {what:11} {found.mean_kl:9.2e} {found.p99_kl:9.2e} "
                    f"{100 * found.top1:6.2f} %",
                    flush=True,
                )
    print(json.dumps({"results": results, "llama.cpp": llama_cpp.__version__, **machine(), **moment()}))


if __name__ == "__main__":
    main()
