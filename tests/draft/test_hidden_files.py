"""Files of hidden states: what readers find in them, and how much room they take."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from specserve.draft.hidden_files import Folder, NoRoom, Shape, TextFile, file_name

SHAPE = Shape((2, 5), 3, "float32")
TOKENS = list(range(10, 30))


def rows(start: int, end: int, shape: Shape = SHAPE) -> torch.Tensor:
    """Row p holds p, and in each column an eighth more than in the one before."""
    width = len(shape.layer_ids) * shape.hidden_size
    return torch.arange(start, end)[:, None] + torch.arange(width) / 8


def written(folder: Folder, name: str = "a", shape: Shape = SHAPE, *spans: tuple[int, int]) -> Path:
    file = TextFile(folder, name, shape, 5)
    for start, end in spans or ((0, 3), (3, 7)):
        file.write(start, rows(start, end, shape))
    return file.finish(TOKENS)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("num_layers", [1, 2, 300])
def test_a_reader_finds_rows_tokens_and_where_they_are_from(
    tmp_path: Path, dtype: str, num_layers: int
) -> None:
    shape = Shape(tuple(range(2, 2 + num_layers)), 3, dtype)
    with safe_open(written(Folder(tmp_path, 10**6), "a", shape), "pt") as found:
        states = found.get_tensor("hidden_states")
        assert states.shape == (7, num_layers, 3)
        assert states.dtype == getattr(torch, dtype)
        assert torch.equal(states.flatten(1), rows(0, 7, shape).to(states.dtype))
        assert torch.equal(found.get_slice("hidden_states")[4:6], states[4:6])
        assert found.get_tensor("token_ids").tolist() == TOKENS[:7]
        assert found.metadata() == {"layer_ids": str(list(shape.layer_ids)), "num_prompt_tokens": "5"}


def test_rows_may_come_in_any_pieces_and_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 10**6)
    once = written(folder, "a", SHAPE, (0, 7)).read_bytes()
    again = written(folder, "b", SHAPE, (0, 4), (0, 2), (2, 6), (0, 6), (6, 7)).read_bytes()
    assert once == again


def test_a_row_that_is_missing_is_noticed(tmp_path: Path) -> None:
    file = TextFile(Folder(tmp_path, 10**6), "a", SHAPE, 5)
    file.write(0, rows(0, 2))
    with pytest.raises(AssertionError, match="rows 2 to 3 are missing"):
        file.write(3, rows(3, 4))
    file.discard()


def test_a_file_has_its_name_when_it_is_complete(tmp_path: Path) -> None:
    file = TextFile(Folder(tmp_path, 10**6), "a", SHAPE, 2)
    file.write(0, rows(0, 2))
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    assert file.finish(TOKENS) == tmp_path / "a.safetensors"
    assert names(tmp_path) == ["a.safetensors"]


def test_two_of_a_name_do_not_meet(tmp_path: Path) -> None:
    """The later one replaces the other, whole."""
    folder = Folder(tmp_path, 10**6)
    first, second = TextFile(folder, "a", SHAPE, 5), TextFile(folder, "a", SHAPE, 5)
    first.write(0, rows(0, 6))
    second.write(0, rows(0, 7))
    second.finish(TOKENS)
    assert (tmp_path / "a.safetensors").stat().st_size == SHAPE.file_bytes(7)
    first.finish(TOKENS)
    assert (tmp_path / "a.safetensors").stat().st_size == SHAPE.file_bytes(6)
    assert names(tmp_path) == ["a.safetensors"]


def test_what_is_discarded_leaves_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path, SHAPE.file_bytes(7))
    file = TextFile(folder, "b", SHAPE, 7)
    file.write(0, rows(0, 2))
    file.discard()
    TextFile(folder, "c", SHAPE, 7).discard()
    assert names(tmp_path) == []
    assert written(folder).exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cmpl-1", "cmpl-1.safetensors"),
        ("../../etc/passwd", "_.._etc_passwd.safetensors"),
        ("/a b", "_a_b.safetensors"),
        (".hidden", "hidden.safetensors"),
        ("x" * 300 + "-1.0", "x" * 196 + "-1.0.safetensors"),
    ],
)
def test_a_name_is_no_path(name: str, expected: str) -> None:
    assert file_name(name) == expected


# --- room ---------------------------------------------------------------------------------------


def test_files_are_as_large_as_was_reserved(tmp_path: Path) -> None:
    size = SHAPE.file_bytes(7)
    assert written(Folder(tmp_path, size)).stat().st_size == size


def test_no_more_is_written_than_there_is_room(tmp_path: Path) -> None:
    """Files that were there count, what a crash left among them, and those that are being written."""
    written(Folder(tmp_path, 10**6))
    (tmp_path / "old.1234.part").write_bytes(bytes(50))
    cap = SHAPE.file_bytes(7) + 50 + SHAPE.file_bytes(4) + SHAPE.file_bytes(3)
    folder = Folder(tmp_path, cap)
    first, second = TextFile(folder, "b", SHAPE, 1), TextFile(folder, "c", SHAPE, 1)
    first.write(0, rows(0, 4))
    second.write(0, rows(0, 3))
    for file, start in ((second, 3), (first, 4)):
        with pytest.raises(
            NoRoom, match=rf"no room for 32 more bytes of hidden_states_max_bytes={cap}: delete"
        ):
            file.write(start, rows(start, start + 1))
    first.finish(TOKENS)
    second.discard()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == cap - SHAPE.file_bytes(3)


def test_a_prompt_that_begins_has_room_for_its_end(tmp_path: Path) -> None:
    folder = Folder(tmp_path, SHAPE.file_bytes(7))
    first, second = TextFile(folder, "a", SHAPE, 7), TextFile(folder, "b", SHAPE, 1)
    first.write(0, rows(0, 1))
    with pytest.raises(NoRoom):
        second.write(0, rows(0, 1))
    first.write(1, rows(1, 7))
    assert first.finish(TOKENS).exists()


def test_room_that_a_reader_makes_is_found(tmp_path: Path) -> None:
    folder = Folder(tmp_path, SHAPE.file_bytes(7))
    path = written(folder)
    with pytest.raises(NoRoom):
        written(folder, "b")
    path.unlink()
    assert written(folder, "b").stat().st_size == SHAPE.file_bytes(7)


def test_a_file_that_is_written_again_counts_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 2 * SHAPE.file_bytes(7))
    for _ in range(5):
        written(folder)
    assert written(folder, "b").exists()
