"""Hidden states of one text in one safetensors file, written as rows come, in a folder of bounded size.

Layout: 8 bytes that say how long the header is, the header (JSON, padded with spaces), then `hidden_states`
[n, layers, hidden], then `token_ids` [n] int64; row p belongs to token p. The header comes first and says n,
so it is written last, into the space that was left for it. A file has its name only when all of it is on the
disk; until then its name ends in `.part`.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

DTYPES = {
    "float32": (torch.float32, "F32"),
    "bfloat16": (torch.bfloat16, "BF16"),
    "float16": (torch.float16, "F16"),
}
ID_BYTES = 8
ALIGNMENT = 64  # of the data, so that it can be mapped as any type
MOST_ROWS = 2**48  # no file has as many: the longest header
MAX_NAME = 200


class NoRoom(Exception):
    """The folder holds as many bytes as it may."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one row: the layers whose states it has, their size, the type they are stored in."""

    layer_ids: tuple[int, ...]
    hidden_size: int
    dtype: str

    @property
    def row_bytes(self) -> int:
        return len(self.layer_ids) * self.hidden_size * DTYPES[self.dtype][0].itemsize

    @property
    def header_bytes(self) -> int:
        """Before the data; the same for every text."""
        return _header_bytes(self)

    def file_bytes(self, num_rows: int) -> int:
        return self.header_bytes + num_rows * (self.row_bytes + ID_BYTES)

    def stored(self, rows: Tensor) -> bytes:
        """Rows [m, layers * hidden] as the file has them."""
        values = rows.to(dtype=DTYPES[self.dtype][0], device="cpu").contiguous()
        return values.view(torch.uint8).numpy().tobytes()

    def header(self, num_rows: int, num_prompt: int) -> bytes:
        size = self.header_bytes - 8
        return size.to_bytes(8, "little") + self._header(num_rows, num_prompt).ljust(size)

    def _header(self, num_rows: int, num_prompt: int) -> bytes:
        end = num_rows * self.row_bytes
        entries = {
            "__metadata__": {"layer_ids": json.dumps(self.layer_ids), "num_prompt_tokens": str(num_prompt)},
            "hidden_states": {
                "dtype": DTYPES[self.dtype][1],
                "shape": [num_rows, len(self.layer_ids), self.hidden_size],
                "data_offsets": [0, end],
            },
            "token_ids": {
                "dtype": "I64",
                "shape": [num_rows],
                "data_offsets": [end, end + num_rows * ID_BYTES],
            },
        }
        return json.dumps(entries).encode()


@cache  # asked for with every write
def _header_bytes(shape: Shape) -> int:
    return -(-(8 + len(shape._header(MOST_ROWS, MOST_ROWS))) // ALIGNMENT) * ALIGNMENT


class Folder:
    """Files of at most `max_bytes` together, those included that were there or are being written.

    Whoever reads them may delete them: where there is no room left, the folder is looked at again. Raises
    `OSError` if it cannot be made.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._max_bytes = max_bytes
        self._reserved: dict[Path, int] = {}  # for the files that are being written here
        self._num_bytes = sum(self._others())

    def reserve(self, part: Path, num_bytes: int) -> None:
        """Room for so many bytes of this file in all. Raises `NoRoom`."""
        more = num_bytes - self._reserved.get(part, 0)
        if not self._has_room(more):
            self._num_bytes = sum(self._others())
        if not self._has_room(more):
            raise NoRoom(
                f"{self.path} has no room for {more} more bytes of hidden_states_max_bytes="
                f"{self._max_bytes}: delete files, or raise it."
            )
        self._reserved[part] = num_bytes

    def close(self, part: Path, num_bytes: int) -> None:
        """The file ended and has so many bytes, or none."""
        self._reserved.pop(part, None)
        self._num_bytes += num_bytes

    def sync(self) -> None:
        """Names, too, are on the disk after this."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _has_room(self, num_bytes: int) -> bool:
        return self._num_bytes + sum(self._reserved.values()) + num_bytes <= self._max_bytes

    def _others(self) -> Iterator[int]:
        """Sizes of all files but those that are being written here; what a crash left is among them."""
        for pattern in ("*.safetensors", "*.part"):
            for file in self.path.glob(pattern):
                if file not in self._reserved:
                    with suppress(FileNotFoundError):  # its reader was faster
                        yield file.stat().st_size


class TextFile:
    """One text's rows, of which there will be at least `num_prompt`."""

    def __init__(self, folder: Folder, name: str, shape: Shape, num_prompt: int) -> None:
        self._folder = folder
        self._shape = shape
        self._num_prompt = num_prompt
        self._path = folder.path / file_name(name)
        self._part = folder.path / f"{self._path.stem}.{secrets.token_hex(4)}.part"
        self._file: BinaryIO | None = None
        self._num_rows = 0

    def write(self, start: int, rows: Tensor) -> None:
        """Rows [m, layers * hidden] of positions from `start` on, none missing before it; those that came
        before are skipped. Raises `NoRoom` and `OSError`."""
        end = start + len(rows)
        if end <= self._num_rows:
            return
        assert start <= self._num_rows, f"rows {self._num_rows} to {start} are missing"
        self._folder.reserve(self._part, self._shape.file_bytes(max(end, self._num_prompt)))
        if self._file is None:
            self._file = self._part.open("xb")
            self._file.seek(self._shape.header_bytes)
        self._file.write(self._shape.stored(rows[self._num_rows - start :]))
        self._num_rows = end

    def finish(self, tokens: Sequence[int]) -> Path:
        """Its name, which it has from now on; `tokens` is the text, a token per row or more."""
        assert self._file is not None, "a text without rows"
        with self._file as file:
            ids = torch.tensor(tokens[: self._num_rows], dtype=torch.int64)
            file.write(ids.numpy().tobytes())
            file.seek(0)
            file.write(self._shape.header(self._num_rows, self._num_prompt))
            file.flush()
            os.fsync(file.fileno())
        self._part.replace(self._path)
        self._folder.sync()
        self._folder.close(self._part, self._shape.file_bytes(self._num_rows))
        return self._path

    def discard(self) -> None:
        """Nothing is left of it, as far as the disk allows."""
        if self._file is not None:
            with suppress(OSError):  # what is still buffered need not be written
                self._file.close()
            with suppress(OSError):
                self._part.unlink()
        self._folder.close(self._part, 0)


def file_name(name: str) -> str:
    """Of the text with this name, which a client may have chosen: no path, and nothing hidden."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[-MAX_NAME:] + ".safetensors"
