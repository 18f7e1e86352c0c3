"""The header of a GGUF file, without touching its tensors' data.

Layout (little-endian): magic "GGUF", version u32, tensor count u64, pair count u64; the pairs: key string,
type u32, value; the tensors: name string, number of axes u32, sizes u64 (fastest first), type u32, offset
u64; then data, aligned. A string is a u64 length and UTF-8; an array is an element type u32, a u64 count
and the elements. The `gguf` package reads the same, but needs seconds for a vocabulary.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specserve.errors import ModelError

_MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """`shape` slowest axis first, as PyTorch has it; `kind` is GGUF's number of the element type; `offset`
    in bytes from the file's start."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    pairs: dict[str, Any]
    tensors: list[TensorInfo]


class _Reader:
    """A position in the file; raises `struct.error` past its end."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self._data = data
        self.at = at

    def number(self, code: str, count: int = 1) -> tuple[Any, ...]:
        layout = struct.Struct(f"<{count}{code}")
        values = layout.unpack_from(self._data, self.at)
        self.at += layout.size
        return values

    def strings(self, count: int) -> list[str]:
        data, at = self._data, self.at
        found = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size + length
            found.append(data[at - length : at].decode(errors="replace"))
        if at > len(data):
            raise struct.error("string past the end")
        self.at = at
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
    return read_header(path).pairs


def read_header(path: Path) -> Header:
    """Pairs and tensor places. Raises `ModelError` naming the file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read_header(data)
    except (struct.error, MemoryError) as error:
        raise ModelError(f"{path}: the file ends inside its header; it is truncated or damaged.") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not a readable GGUF file ({error}).") from error


def _read_header(data: mmap.mmap) -> Header:
    if data[:4] != _MAGIC:
        raise ValueError(f"it begins with {data[:4]!r}, not {_MAGIC!r}")
    reader = _Reader(data, len(_MAGIC))
    (version,) = reader.number("I")
    if version not in (2, 3):
        raise ValueError(f"version {version} of the format; 2 and 3 are known, little-endian")
    num_tensors, num_pairs = reader.number("Q", 2)
    pairs: dict[str, Any] = {}
    for _ in range(num_pairs):
        (key,) = reader.strings(1)
        pairs[key] = reader.value(*reader.number("I"))
    tensors = [_read_tensor(reader) for _ in range(num_tensors)]
    alignment = pairs.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment is {alignment!r}, a positive integer was expected")
    start = -(-reader.at // alignment) * alignment
    for info in tensors:
        if info.offset % alignment:
            raise ValueError(f"tensor {info.name!r} begins at {info.offset}, no multiple of {alignment}")
    moved = [TensorInfo(t.name, t.shape, t.kind, start + t.offset) for t in tensors]
    return Header(pairs, moved)


def _read_tensor(reader: _Reader) -> TensorInfo:
    (name,) = reader.strings(1)
    sizes = reader.number("Q", *reader.number("I"))
    (kind,), (offset,) = reader.number("I"), reader.number("Q")
    return TensorInfo(name, sizes[::-1], kind, offset)
