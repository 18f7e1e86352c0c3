"""Folders of safetensors: which file holds which tensor, and what is wrong with a damaged one."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from specserve.errors import ModelError
from specserve.models.source import INDEX, SafetensorsFolder

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4), "c": torch.zeros(2, 2)}


def shards(folder: Path, files: Mapping[str, list[str]], index: Mapping[str, str] | None = None) -> None:
    """Files with the tensors named; the index says where they are, unless it is given."""
    for file, names in files.items():
        save_file({name: TENSORS[name] for name in names}, folder / file)
    places = {name: file for file, names in files.items() for name in names}
    (folder / INDEX).write_text(
        json.dumps({"metadata": {}, "weight_map": places if index is None else index})
    )


def contents(folder: Path) -> dict[str, Tensor]:
    source = SafetensorsFolder(folder)
    return {name: source.read(name) for name in source.names()}


def same(found: Mapping[str, Tensor]) -> bool:
    return found.keys() == TENSORS.keys() and all(torch.equal(found[name], TENSORS[name]) for name in found)


def message(folder: Path) -> str:
    """Of the one error, which is one line."""
    with pytest.raises(ModelError) as caught:
        contents(folder)
    assert "\n" not in str(caught.value)
    assert caught.value.param == "model"
    return str(caught.value)


def test_one_file_is_read(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert same(contents(tmp_path))
    assert SafetensorsFolder(tmp_path).place("a") == str(tmp_path / "model.safetensors")


def test_shards_are_read_by_their_index(tmp_path: Path) -> None:
    shards(tmp_path, {"x.safetensors": ["a", "c"], "y.safetensors": ["b"]})
    assert same(contents(tmp_path))
    assert SafetensorsFolder(tmp_path).place("b") == str(tmp_path / "y.safetensors")


def test_files_without_index_are_read_all(tmp_path: Path) -> None:
    shards(tmp_path, {"x.safetensors": ["a", "c"], "y.safetensors": ["b"]})
    (tmp_path / INDEX).unlink()
    assert same(contents(tmp_path))


def test_the_one_file_wins_over_an_index(tmp_path: Path) -> None:
    shards(tmp_path, {"x.safetensors": ["a"]})
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert same(contents(tmp_path))


def test_tensors_the_index_does_not_name_are_not_there(tmp_path: Path) -> None:
    shards(tmp_path, {"x.safetensors": ["a", "b"]}, {"a": "x.safetensors"})
    assert list(SafetensorsFolder(tmp_path).names()) == ["a"]


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    shards(tmp_path, {"x.safetensors": ["a"], "y.safetensors": ["b"]})
    (tmp_path / "y.safetensors").unlink()
    assert message(tmp_path) == f"{tmp_path / 'y.safetensors'}: this shard is missing; {INDEX} names it."


def test_a_tensor_that_is_not_where_the_index_says_is_named(tmp_path: Path) -> None:
    shards(tmp_path, {"x.safetensors": ["a"]}, {"a": "x.safetensors", "b": "x.safetensors"})
    assert (
        message(tmp_path) == f"{tmp_path / 'x.safetensors'}: tensor 'b' is missing; {INDEX} says it is here."
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "\xff"]
)
def test_an_index_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text, encoding="latin-1")
    assert message(tmp_path).startswith(f"{tmp_path / INDEX}: no valid index of shards (")


@pytest.mark.parametrize("kept", [0, 4, 40, -1, -30])
def test_a_truncated_file_is_named(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "model.safetensors"
    save_file(TENSORS, file)
    file.write_bytes(file.read_bytes()[:kept])
    assert message(tmp_path).startswith(f"{file}: not a whole safetensors file (")


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    shards(tmp_path, {"x.safetensors": ["a"], "y.safetensors": ["b"]})
    (tmp_path / "y.safetensors").write_bytes((tmp_path / "y.safetensors").read_bytes()[:-3])
    assert message(tmp_path).startswith(f"{tmp_path / 'y.safetensors'}: not a whole safetensors file (")


def test_a_text_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    """What a clone without large-file support leaves behind."""
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "not a whole safetensors file" in message(tmp_path)


def test_a_folder_without_weights_says_what_was_sought(tmp_path: Path) -> None:
    assert message(tmp_path) == f"{tmp_path}: no model.safetensors and no {INDEX}."


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin"])
def test_a_folder_of_pickles_says_how_to_go_on(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert "is a pickle; convert it" in message(tmp_path)


def test_nothing_stays_open(tmp_path: Path) -> None:
    shards(tmp_path, {"x.safetensors": ["a", "c"], "y.safetensors": ["b"]})
    assert same(contents(tmp_path))
    gc.collect()
    held = {link.resolve() for link in Path("/proc/self/fd").iterdir()}
    assert not [path for path in held if path.parent == tmp_path.resolve()]
