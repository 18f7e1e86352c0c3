"""Remembered outputs between two runs: one file, which is replaced as a whole or not at all.

    specserve suffix store 1\\n
    {"vocab_size": …, "cache": "per-tenant", "tenants": [name, …], "texts": [[tenant, length], …]}\\n
    the ids of all texts in that order, int32, little-endian
    SHA-256 of everything before

Tenants are named by digests, as in the store. A file that is damaged is reported and written anew; one that
somebody else wrote, or for another vocabulary, is reported and left alone.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specserve.draft.suffix_store import Stores, Texts

logger = logging.getLogger(__name__)

NAME, VERSION = b"specserve suffix store ", b"1"
DIGEST_SIZE = 32
IDS = np.dtype("<i4")
GROWTH = 8  # written again when an eighth of the tokens is new


class Damaged(ValueError):
    """Ours, but not as it was written."""


class Foreign(ValueError):
    """Not ours, or not for this store."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the ids mean, and whose texts they are. A store takes over its own kind only."""

    vocab_size: int
    cache: str


def encode(mark: Mark, texts: Texts) -> bytes:
    tenants: dict[str, int] = {}
    lengths, ids = [], bytearray()
    for tenant, text in texts:
        lengths.append([tenants.setdefault(tenant, len(tenants)), len(text)])
        ids += np.array(text, IDS).tobytes()
    header = json.dumps({**asdict(mark), "tenants": list(tenants), "texts": lengths})
    body = b"\n".join((NAME + VERSION, header.encode(), ids))
    return body + sha256(body).digest()


def decode(data: bytes, mark: Mark) -> Texts:
    """Raises `Damaged` or `Foreign`, saying what is wrong."""
    first, _, rest = data.partition(b"\n")
    if (NAME + VERSION).startswith(data):
        raise Damaged("it ends in its first line")
    if not first.startswith(NAME):
        raise Foreign("it is no store of the suffix drafter")
    if first != NAME + VERSION:
        raise Foreign(f"its version is {first[len(NAME) :]!r}, not {VERSION!r}")
    if sha256(data[:-DIGEST_SIZE]).digest() != data[-DIGEST_SIZE:]:
        raise Damaged("its checksum is wrong")
    line, _, ids = rest[:-DIGEST_SIZE].partition(b"\n")
    try:
        header = json.loads(line)
        found = Mark(header["vocab_size"], header["cache"])
        texts = _texts(header["tenants"], header["texts"], np.frombuffer(ids, IDS))
    except (ValueError, TypeError, LookupError) as error:
        raise Damaged(f"its content is none of ours ({error!r})") from error
    if found != mark:
        raise Foreign(f"it was written with {found}, and this is {mark}")
    return texts


def _texts(
    tenants: Sequence[str], lengths: Sequence[tuple[int, int]], ids: NDArray[np.int32]
) -> list[tuple[str, list[int]]]:
    ends = [0, *accumulate(length for _, length in lengths)]
    if ends != sorted(ends) or ends[-1] != len(ids):
        raise ValueError(f"lengths of {ends[-1]} for {len(ids)} ids")
    return [
        (tenants[tenant], ids[start:end].tolist())
        for (tenant, _), (start, end) in zip(lengths, pairwise(ends), strict=True)
    ]


class StoreFile:
    """Where `stores` are kept. Trouble with the file costs what is remembered, never a request."""

    def __init__(self, path: Path, mark: Mark, stores: Stores) -> None:
        self._path = path
        self._mark = mark
        self._stores = stores
        self._num_saved = 0
        self._may_write = True

    def load(self) -> None:
        try:
            texts = decode(self._path.read_bytes(), self._mark)
        except FileNotFoundError:
            return
        except (Damaged, Foreign, OSError) as error:
            self._may_write = isinstance(error, Damaged)
            then = "a new one will replace it" if self._may_write else "nothing will be written there"
            logger.warning("suffix_decoding_store %s is ignored: %s; %s.", self._path, error, then)
            return
        for tenant, text in texts:
            self._stores.remember(tenant, text)
        self._num_saved = self._stores.num_appended

    def save_if_grown(self) -> None:
        """Rarely enough that a token's share of all writing is constant."""
        new = self._stores.num_appended - self._num_saved
        if new * GROWTH > self._stores.num_tokens:
            self.save()

    def save(self) -> None:
        if not self._may_write or self._num_saved == self._stores.num_appended:
            return
        self._num_saved = self._stores.num_appended
        try:
            replace(self._path, encode(self._mark, self._stores.contents()))
        except OSError as error:
            self._may_write = False
            logger.warning("suffix_decoding_store %s could not be written: %s.", self._path, error)


def replace(path: Path, data: bytes) -> None:
    """The old content or the new one is there at any moment, readable by its owner only."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
