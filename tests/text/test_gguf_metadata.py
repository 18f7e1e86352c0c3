"""The header reader, against files the `gguf` package writes."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import pytest

from specserve.errors import ModelError
from specserve.text.gguf_metadata import read_metadata
from tests.support.vocabularies import write_gguf


def test_every_value_type_is_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "x.gguf"), "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -3)
    writer.add_uint16("u16", 60_000)
    writer.add_int16("i16", -300)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -(2**31))
    writer.add_uint64("u64", 2**63)
    writer.add_int64("i64", -(2**63))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "你 好")
    writer.add_array("texts", ["a", "", "日本"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("floats", [0.25, -1.0])
    writer.add_array("nested", [[1, 2], [3]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert read_metadata(tmp_path / "x.gguf") == {
        "general.architecture": "llama",
        "u8": 200,
        "i8": -3,
        "u16": 60_000,
        "i16": -300,
        "u32": 2**32 - 1,
        "i32": -(2**31),
        "u64": 2**63,
        "i64": -(2**63),
        "f32": 0.5,
        "f64": 0.1,
        "yes": True,
        "text": "你 好",
        "texts": ["a", "", "日本"],
        "numbers": [1, -2, 3],
        "floats": [0.25, -1.0],
        "nested": [[1, 2], [3]],
    }


def test_a_file_cut_anywhere_is_reported_by_name(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "x.gguf", {"a": "text", "b": ["x", "yz"], "c": 3}).read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"cut\.gguf"):
            read_metadata(cut)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04 something else", "it begins with b'PK"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 of the format"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little-endian"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 99), "unknown value type 99"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63), "truncated or damaged"),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"w" + struct.pack("<IQIQ", 1, 4, 0, 3),
            "tensor 'w' begins at 3, no multiple of 32",
        ),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 17) + b"general.alignment" + struct.pack("<II", 4, 0),
            "general.alignment is 0, a positive integer",
        ),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 4, 2**62), "x.gguf"),
    ],
)
def test_what_is_no_gguf_header_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        read_metadata(path)


def test_a_missing_file_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent\.gguf"):
        read_metadata(tmp_path / "absent.gguf")
