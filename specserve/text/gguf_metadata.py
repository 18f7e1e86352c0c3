"""The key-value header of a GGUF file, without touching its tensors.

Layout (little-endian): magic "GGUF", version u32, tensor count u64, pair count u64, then the pairs:
key string, type u32, value. A string is a u64 length and UTF-8; an array is an element type u32, a u64
count and the elements. The `gguf` package reads the same, but needs seconds for a vocabulary.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from specserve.errors import ModelError

_MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")


class _Reader:
    """A position in the file; raises `struct.error` past its end."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self._data = data
        self._at = at

    def number(self, code: str, count: int = 1) -> tuple[Any, ...]:
        layout = struct.Struct(f"<{count}{code}")
        values = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return values

    def strings(self, count: int) -> list[str]:
        data, at = self._data, self._at
        found = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size + length
            found.append(data[at - length : at].decode(errors="replace"))
        if at > len(data):
            raise struct.error("string past the end")
        self._at = at
        return found

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.strings(1)[0]
        if kind == _ARRAY:
            return self.array(*self.number("I"), *self.number("Q"))
        if kind not in _SCALARS:
            raise ValueError(f"unknown value type {kind}")
        return self.number(_SCALARS[kind])[0]

    def array(self, kind: int, count: int) -> list[Any]:
        if kind == _STRING:
            return self.strings(count)
        if kind in _SCALARS:
            return list(self.number(_SCALARS[kind], count))
        return [self.value(kind) for _ in range(count)]


def read_metadata(path: Path) -> dict[str, Any]:
    """All key-value pairs of the file's header. Raises `ModelError` naming the file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read_pairs(data)
    except (struct.error, MemoryError) as error:
        raise ModelError(f"{path}: the file ends inside its header; it is truncated or damaged.") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not a readable GGUF file ({error}).") from error


def _read_pairs(data: mmap.mmap) -> dict[str, Any]:
    if data[:4] != _MAGIC:
        raise ValueError(f"it begins with {data[:4]!r}, not {_MAGIC!r}")
    reader = _Reader(data, len(_MAGIC))
    (version,) = reader.number("I")
    if version not in (2, 3):
        raise ValueError(f"version {version} of the format; 2 and 3 are known, little-endian")
    _, num_pairs = reader.number("Q", 2)
    pairs: dict[str, Any] = {}
    for _ in range(num_pairs):
        (key,) = reader.strings(1)
        pairs[key] = reader.value(*reader.number("I"))
    return pairs
