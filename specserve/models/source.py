"""Tensors by their Hugging Face names, wherever they lie. Files are mapped, not read at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from safetensors import SafetensorError, safe_open
from torch import Tensor

from specserve.errors import ModelError
from specserve.ops.native import Blocks

INDEX = "model.safetensors.index.json"


class Source(Protocol):
    """`place` says where a tensor lies, for messages."""

    def names(self) -> Iterator[str]: ...
    def place(self, name: str) -> str: ...
    def read(self, name: str) -> Tensor:
        """The tensor as a network uses it, in any float dtype. Raises `ModelError` for a damaged file."""
        ...

    def blocks(self, name: str) -> Blocks | None:
        """A matrix as quantised blocks, where it is stored so and they can be taken over as they are."""
        ...


class SafetensorsFolder:
    """A folder with `model.safetensors`, or shards and their index."""

    def __init__(self, folder: Path) -> None:
        self._files = _tensor_files(folder)
        self._shards: dict[Path, safe_open] = {}

    def names(self) -> Iterator[str]:
        yield from self._files

    def place(self, name: str) -> str:
        return str(self._files[name])

    def read(self, name: str) -> Tensor:
        path = self._files[name]
        if path not in self._shards:
            self._shards[path] = _open(path)
        try:
            tensor: Tensor = self._shards[path].get_tensor(name)  # type: ignore[no-untyped-call]
        except SafetensorError as error:
            raise ModelError(f"{path}: cannot read tensor {name!r}: {error}", "model") from None
        return tensor

    def blocks(self, name: str) -> None:
        return None


def _tensor_files(folder: Path) -> dict[str, Path]:
    """Which file holds which tensor. Raises `ModelError` for what is missing, cut off or no such folder."""
    single, index = folder / "model.safetensors", folder / INDEX
    if single.exists():
        return dict.fromkeys(_names_in(single), single)
    if index.exists():
        return _sharded_files(folder, index)
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        reason = f"{folder}: no model.safetensors and no {INDEX}."
        if any(folder.glob("pytorch_model*.bin")):
            reason += " Its pytorch_model.bin is a pickle; convert it with safetensors first."
        raise ModelError(reason, "model")
    return {name: path for path in found for name in _names_in(path)}


def _sharded_files(folder: Path, index: Path) -> dict[str, Path]:
    try:
        shards = {name: folder / file for name, file in json.loads(index.read_text())["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index}: no valid index of shards ({error}).", "model") from None
    for path in dict.fromkeys(shards.values()):
        if not path.exists():
            raise ModelError(f"{path}: this shard is missing; {INDEX} names it.", "model")
        held = set(_names_in(path))
        for name, place in shards.items():
            if place == path and name not in held:
                raise ModelError(f"{path}: tensor {name!r} is missing; {INDEX} says it is here.", "model")
    return shards


def _names_in(path: Path) -> list[str]:
    return list(_open(path).keys())  # type: ignore[no-untyped-call]


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: not a whole safetensors file ({error}).", "model") from None
