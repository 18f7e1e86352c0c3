"""No drafter: writes the chosen layers' states of every text into files that a training can read.

vLLM's method of this name and its example connector, in one. Nothing is guessed. Pages are never shared: a
row that another text computed is in no commit, and would be missing here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any

from torch import Tensor

from specserve.draft.config_target import TargetInfo
from specserve.draft.hidden_files import Folder, NoRoom, Shape, TextFile
from specserve.errors import ConfigError
from specserve.sampling_params import INCLUDE_OUTPUT
from specserve.types import AskBatch, Commit, CommitBatch, Draft, Needs

logger = logging.getLogger(__name__)

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
PATH, ERROR = "hidden_states_path", "hidden_states_error"  # in a reply


@dataclass(frozen=True, slots=True)
class Options:
    """`draft_model_config` has the layers under `hf_config`; in `config/speculative.py` is what the others
    mean."""

    draft_model_config: Mapping[str, Any]
    shared_storage_path: str | None = None
    include_output_tokens: bool = False
    hidden_states_dtype: str = "float32"
    hidden_states_max_bytes: int = 10 * 2**30

    @property
    def layer_ids(self) -> tuple[int, ...]:
        return tuple(self.draft_model_config["hf_config"][LAYER_IDS])


def build(options: Options, target: TargetInfo) -> HiddenStates:
    """Raises `ConfigError` for a folder that cannot be written to, and for a limit no file could keep."""
    shape = Shape(options.layer_ids, target.hidden_size, options.hidden_states_dtype)
    smallest = shape.file_bytes(1)
    if options.hidden_states_max_bytes < smallest:
        raise ConfigError(
            f"hidden_states_max_bytes={options.hidden_states_max_bytes} is less than the {smallest} bytes "
            f"of a file of one token; raise it, or name fewer layers.",
            "hidden_states_max_bytes",
        )
    folder = _folder(options)
    logger.info("Hidden states of layers %s go to %s.", list(options.layer_ids), folder.path)
    return HiddenStates(shape, folder, options.include_output_tokens)


def _folder(options: Options) -> Folder:
    """As told, or one among the system's temporary files; made if need be, and tried."""
    told = options.shared_storage_path
    path = Path(told).absolute() if told else Path(gettempdir()) / "hidden_states"
    try:
        folder = Folder(path, options.hidden_states_max_bytes)
        TemporaryFile(dir=path).close()
    except OSError as error:
        raise ConfigError(
            f"shared_storage_path={str(path)!r} cannot be written to ({error.strerror}); name a folder that "
            f"can.",
            "shared_storage_path",
        ) from error
    return folder


@dataclass(slots=True)
class _Text:
    """One whose rows are wanted. `file` is None once it was given up; its last commit has a live view of the
    tokens."""

    file: TextFile | None
    includes_output: bool
    commit: Commit


class HiddenStates:
    """Writes rows as they become true, and names the file when the text has come to its own end."""

    def __init__(self, shape: Shape, folder: Folder, includes_output: bool) -> None:
        """`includes_output` is for requests that say nothing about it."""
        self.needs = Needs(features=shape.layer_ids, guesses=False)
        self._shape = shape
        self._folder = folder
        self._includes_output = includes_output
        self._texts: dict[int, _Text] = {}

    def observe(self, commits: CommitBatch) -> None:
        assert commits.features is not None
        for commit in commits.commits:
            if not commit.transfer.name:
                continue
            text = self._texts.get(commit.seq_id) or self._open(commit)
            text.commit = commit
            end = commit.end if text.includes_output else min(commit.end, commit.num_prompt)
            if end > commit.start and text.file is not None:
                rows = commits.features[commit.row : commit.row + end - commit.start]
                _write(text, text.file, rows)

    def propose(self, asks: AskBatch) -> Draft:
        return Draft([[] for _ in asks.asks])

    def synced(self, seq_id: int) -> int:
        """Never: who finds a page shared computes no rows for it."""
        return 0

    def forget(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            text = self._texts.pop(seq_id, None)
            if text is not None and text.file is not None:
                _finish(text, text.file)

    def _open(self, commit: Commit) -> _Text:
        asked = commit.transfer.asked.get(INCLUDE_OUTPUT)
        includes_output = self._includes_output if asked is None else asked
        file = TextFile(self._folder, commit.transfer.name, self._shape, commit.num_prompt)
        found = self._texts[commit.seq_id] = _Text(file, includes_output, commit)
        return found


def _write(text: _Text, file: TextFile, rows: Tensor) -> None:
    try:
        file.write(text.commit.start, rows)
    except (OSError, NoRoom) as error:
        _give_up(text, file, error)


def _finish(text: _Text, file: TextFile) -> None:
    """An aborted text, or one that ended with an error, leaves no file."""
    commit = text.commit
    if not commit.transfer.is_whole:
        file.discard()
        return
    try:
        commit.transfer.told[PATH] = str(file.finish(commit.tokens))
    except OSError as error:
        _give_up(text, file, error)


def _give_up(text: _Text, file: TextFile, error: Exception) -> None:
    """A disk that fails, or is full, costs the file and not the request."""
    transfer = text.commit.transfer
    transfer.told[ERROR] = str(error)
    logger.error("The hidden states of %s are not kept: %s", transfer.name, error)
    text.file = None
    file.discard()
