"""What is remembered between two runs, and what becomes of a file that is not as it was written."""

from __future__ import annotations

import gc
import logging
import os
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specserve.draft import suffix_file
from specserve.draft.config_target import TargetInfo
from specserve.draft.suffix import Options, SuffixDrafter, build
from specserve.draft.suffix_file import Damaged, Foreign, Mark, decode, encode
from specserve.draft.suffix_store import tenant_name
from tests.draft.test_suffix import Writer

TARGET = TargetInfo(model="org/target", vocab_size=1000, max_model_len=2048, num_layers=8, hidden_size=64)
MARK = Mark(1000, "per-tenant")
HEADER = b'{"vocab_size": 1000, "cache": "per-tenant", "tenants": ["a"], "texts": '
TEXTS = [(tenant_name("a"), [1, 2, 3]), (tenant_name("a"), [4]), (tenant_name("b"), [2**31 - 1, 0])]


def drafter(path: Path, **more: object) -> SuffixDrafter:
    return build(replace(Options(suffix_decoding_store=str(path)), **more), TARGET)  # type: ignore[arg-type]


def learn(path: Path, **more: object) -> None:
    """A run in which tenant a hears 4 5 6 7 8, and b nothing."""
    Writer(drafter(path, **more)).tell([1], [4, 5, 6, 7, 8], tenant="a")
    gc.collect()


def knows(path: Path, tenant: str, **more: object) -> bool:
    """Of a copy, which whatever is heard here does not change."""
    copy = path.with_name("copy")
    copy.unlink(missing_ok=True)
    if path.exists():
        shutil.copy(path, copy)
    writer = Writer(drafter(copy, **more))
    name = writer.start([1], tenant)
    writer.write(name, [4, 5, 6])
    return writer.guess(name).tokens == [7, 8]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


# --- round trips ------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, database=None)
@given(st.lists(st.tuples(st.text(), st.lists(st.integers(0, 2**31 - 1)))))
def test_what_is_read_is_what_was_written(texts: list[tuple[str, list[int]]]) -> None:
    assert list(decode(encode(MARK, texts), MARK)) == texts


def test_a_new_run_knows_what_the_last_one_heard(path: Path) -> None:
    assert not knows(path, "a")
    learn(path)
    assert knows(path, "a")


def test_no_tenant_knows_what_another_heard_in_the_last_run(path: Path) -> None:
    learn(path)
    assert [knows(path, tenant) for tenant in ("b", "", "A")] == [False] * 3


def test_the_file_does_not_name_the_tenants(path: Path) -> None:
    writer = Writer(drafter(path))
    writer.tell([1], [4, 5], tenant="digest-of-a-key\0and a salt")
    gc.collect()
    assert b"digest" not in path.read_bytes()
    assert b"salt" not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0


def test_shared_outputs_are_kept_as_such(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    learn(path, suffix_decoding_cache="shared")
    assert knows(path, "b", suffix_decoding_cache="shared")
    before = path.read_bytes()
    learn(path)  # what was shared is nobody's own
    assert path.read_bytes() == before
    assert not knows(path, "a")
    assert "cache='shared'" in caplog.text


def test_a_smaller_store_takes_over_the_youngest(path: Path) -> None:
    learn(path)
    Writer(drafter(path)).tell([1], [9, 9], tenant="a")
    gc.collect()
    assert not knows(path, "a", suffix_decoding_max_cached_requests=1)
    assert knows(path, "a", suffix_decoding_max_cached_requests=3)
    assert not knows(path, "a", suffix_decoding_max_memory=100)


@pytest.mark.parametrize(
    "content",
    [
        b"{}\n",
        b"[]\n",
        b"no JSON\n",
        HEADER + b"[[5, 1]]}\n\0\0\0\0",
        HEADER + b"[[0, 3]]}\n\0\0\0\0",
        HEADER + b"[[0, 2], [0, -1]]}\n\0\0\0\0",
        HEADER + b"[[0, 1]]}\n\0\0\0",
    ],
)
def test_content_that_a_checksum_vouches_for_may_still_be_none_of_ours(path: Path, content: bytes) -> None:
    body = b"specserve suffix store 1\n" + content
    path.write_bytes(body + sha256(body).digest())
    with pytest.raises(Damaged):
        decode(path.read_bytes(), MARK)
    learn(path)
    assert knows(path, "a")


@pytest.mark.parametrize("size", [0, 1, 10, 24])
def test_a_file_that_ends_in_its_first_line_is_written_anew(path: Path, size: int) -> None:
    path.write_bytes(b"specserve suffix store 1"[:size])
    learn(path)
    assert knows(path, "a")


# --- when it is written -----------------------------------------------------------------------


def test_it_is_written_between_requests_when_it_has_grown_by_an_eighth(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    original = suffix_file.replace
    monkeypatch.setattr(suffix_file, "replace", lambda *args: (sizes.append(len(args[1])), original(*args)))
    writer = Writer(drafter(path))
    running = writer.start([1])
    for _ in range(10):
        writer.tell([1], [2] * 10)
    assert sizes == []
    writer.end(running)
    assert len(sizes) == 1
    for _ in range(400):
        writer.tell([1], [2] * 10)
    assert len(sizes) < 40
    held = len(sizes)
    del writer
    gc.collect()
    assert len(sizes) <= held + 1
    assert sum(len(text) for _, text in decode(path.read_bytes(), MARK)) == 4100


def test_what_was_not_heard_is_not_written(path: Path) -> None:
    learn(path)
    before = path.stat()
    drafter(path)
    gc.collect()
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    learn(path)
    before = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        learn(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    assert len(caplog.records) == 1
    assert "could not be written: [Errno 28] No space left on device" in caplog.text


# --- files that are not as they were written ---------------------------------------------------


def test_damage_anywhere_is_found() -> None:
    data = encode(MARK, TEXTS)
    for place in range(len(data)):
        for other in (data[:place], data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]):
            with pytest.raises((Damaged, Foreign)):
                decode(other, MARK)
    with pytest.raises(Damaged):
        decode(data + b"\0", MARK)


def test_a_damaged_file_is_told_once_and_replaced(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    learn(path)
    path.write_bytes(path.read_bytes()[:-1])
    learn(path)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"suffix_decoding_store {path} is ignored: its checksum is wrong; a new one will replace it."
    )
    assert knows(path, "a")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"Dear diary,\n", "it is no store of the suffix drafter"),
        (b"specserve suffix store 2\n{}", "its version is b'2', not b'1'"),
        (encode(Mark(32, "per-tenant"), TEXTS), "vocab_size=32"),
        (encode(Mark(1000, "shared"), TEXTS), "cache='shared'"),
    ],
)
def test_a_file_of_somebody_else_is_told_once_and_left_alone(
    path: Path, data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(data)
    learn(path)
    [record] = caplog.records
    assert reason in record.getMessage()
    assert record.getMessage().endswith("nothing will be written there.")
    assert path.read_bytes() == data


def test_a_file_that_cannot_be_read_is_told_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.mkdir()
    learn(path)
    assert len(caplog.records) == 1
    assert "nothing will be written there" in caplog.text
