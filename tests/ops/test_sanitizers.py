"""The kernels' own tests, in C++, find no bad access, no undefined behaviour and no race."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

MISSING = 77  # what the script exits with where a tool is not there


@pytest.mark.slow
def test_the_kernels_are_clean_under_sanitizers() -> None:
    script = Path(__file__).parents[2] / "scripts" / "sanitize"
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    if done.returncode == MISSING:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" tests, 0 failed") == 2
