"""llama.cpp through its Python bindings' C functions: one context, steps of any number of rows.

    pip install llama-cpp-python==0.3.36

As a program it is a worker (workers.py) for the experiments beside it: `python llamacpp.py FILE flash|plain`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import llama_cpp as lib
import numpy as np
from workers import answer

TYPES = {
    "Q8_0": lib.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0,
    "F16": lib.LLAMA_FTYPE_MOSTLY_F16,
    "F32": lib.LLAMA_FTYPE_ALL_F32,
}
NUM_THREADS = 2
NUM_CONTEXT = 1024
SILENT = lib.llama_log_callback(lambda *_: None)  # llama.cpp keeps its address


def quantised(source: Path, kind: str) -> Path:
    """The file with its weights in another type, made by llama.cpp's own quantiser, once."""
    target = Path(tempfile.gettempdir()) / f"{source.stem}-as-{kind}.gguf"
    if not target.exists():
        params = lib.llama_model_quantize_default_params()
        params.ftype, params.allow_requantize, params.nthread = TYPES[kind], True, NUM_THREADS
        part = target.with_suffix(f".{os.getpid()}")
        if lib.llama_model_quantize(str(source).encode(), str(part).encode(), ctypes.byref(params)):
            raise SystemExit(f"llama.cpp cannot write {target}")
        part.rename(target)
    return target


class Peer:
    """One sequence in one context, with the bindings' defaults but for what is named here."""

    def __init__(self, file: Path, *, flash_attention: bool = True, is_cache_float32: bool = False) -> None:
        lib.llama_backend_init()
        self._model = lib.llama_model_load_from_file(str(file).encode(), lib.llama_model_default_params())
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {file}")
        params = lib.llama_context_default_params()
        params.n_ctx = NUM_CONTEXT
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = NUM_THREADS
        if not flash_attention:
            params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        if is_cache_float32:
            params.type_k = params.type_v = lib.GGML_TYPE_F32
        self._context = lib.llama_init_from_model(self._model, params)
        self._memory = lib.llama_get_memory(self._context)
        self._batch = lib.llama_batch_init(512, 0, 1)
        self.vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))

    def prepare(self, tokens: Sequence[int], start: int, first_wanted: int) -> None:
        """Tokens at positions from `start` on; logits of rows from `first_wanted` on. Later cache goes."""
        lib.llama_memory_seq_rm(self._memory, 0, start, -1)
        batch = self._batch
        batch.n_tokens = len(tokens)
        for row, token in enumerate(tokens):
            batch.token[row], batch.pos[row] = token, start + row
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
            batch.logits[row] = row >= first_wanted

    def decode(self) -> None:
        if lib.llama_decode(self._context, self._batch):
            raise SystemExit("llama.cpp cannot decode")
        lib.llama_synchronize(self._context)

    def logits(self, num_rows: int) -> np.ndarray:
        """The last step's wanted rows [num_rows, V] float32: a view that the next step overwrites."""
        address = lib.llama_get_logits(self._context)
        return np.ctypeslib.as_array(address, shape=(num_rows * self.vocab_size,)).reshape(num_rows, -1)

    def answer_logits(self, ids: Sequence[int], first: int) -> Iterator[np.ndarray]:
        """Logits of rows `first` and later of a whole sequence, in parts."""
        for start in range(0, len(ids), 512):
            tokens, skipped = ids[start : start + 512], max(first - start, 0)
            self.prepare(tokens, start, skipped)
            self.decode()
            if skipped < len(tokens):
                yield self.logits(len(tokens) - skipped)

    def greedy(self, prompt: Sequence[int], num_tokens: int) -> Iterator[int]:
        self.prepare(prompt, 0, len(prompt) - 1)
        for position in range(len(prompt), len(prompt) + num_tokens):
            self.decode()
            token = int(self.logits(1).argmax())
            yield token
            self.prepare([token], position, 0)


# --- a worker -------------------------------------------------------------------------------------


def step_ms(peer: Peer, tokens: Sequence[int], start: int, first_wanted: int, repeats: int) -> list[float]:
    """Milliseconds of the same step, again and again, once for nothing first."""
    times = []
    for _ in range(repeats + 1):
        peer.prepare(tokens, start, first_wanted)
        began = time.perf_counter()
        peer.decode()
        times.append(1e3 * (time.perf_counter() - began))
    return times[1:]


def greedy_rate(tokens: Iterator[int], num_tokens: int) -> float:
    """Tokens per second, the prompt's time included."""
    began = time.perf_counter()
    count = sum(1 for _ in islice(tokens, num_tokens))
    return count / (time.perf_counter() - began)


def generator(file: Path) -> Callable[[Sequence[int]], Iterator[int]]:
    """The bindings' own generation, greedy."""
    llama = lib.Llama(
        str(file), n_ctx=NUM_CONTEXT, n_threads=NUM_THREADS, n_threads_batch=NUM_THREADS, verbose=False
    )
    return lambda prompt: llama.generate(list(prompt), temp=0.0)


def main(file: Path, attention: str) -> None:
    peer = Peer(file, flash_attention=attention == "flash")
    generate = cache(lambda: generator(file))
    answer(
        {
            "step": lambda **given: step_ms(peer, **given),
            "greedy": lambda prompt, num_tokens: greedy_rate(peer.greedy(prompt, num_tokens), num_tokens),
            "generate": lambda prompt, num_tokens: greedy_rate(generate()(prompt), num_tokens),
            "about": lambda: f"{lib.__version__}, {lib.llama_print_system_info().decode()}",
        }
    )


lib.llama_log_set(SILENT, ctypes.c_void_p(0))
if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
