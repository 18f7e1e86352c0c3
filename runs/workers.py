"""Engines in processes of their own, controlled over pipes: one JSON object per line each way.

Whoever asks waits for the answer, so only one engine computes at a time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any


class Worker:
    """`with Worker("llamacpp.py", [file]) as worker: worker.ask("step", tokens=[...])`"""

    def __init__(self, program: str, arguments: Sequence[str]) -> None:
        command = [sys.executable, str(Path(__file__).with_name(program)), *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, action: str, **given: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps({"do": action, **given}), file=stdin, flush=True)
        line = stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self._process.args[1:]))} has ended")  # type: ignore[index]
        return json.loads(line)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()


def answer(actions: Mapping[str, Callable[..., Any]]) -> None:
    """The worker's side: until stdin ends, call what is asked for."""
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(actions[request.pop("do")](**request)), flush=True)


def moment() -> dict[str, Any]:
    """The commit, and how busy the machine is: a load well above 0 before a run that times spoils it."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return {"commit": commit, "load": [round(load, 2) for load in os.getloadavg()]}
