"""A bar on stderr while something is measured, for people only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress(total: int, title: str, *, hidden: bool = False) -> Iterator[Callable[[], None]]:
    """Yields what to call after each of `total` pieces. Nothing is drawn where stderr is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    is_hidden = hidden or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=is_hidden) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)
