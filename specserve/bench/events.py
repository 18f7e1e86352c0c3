"""Server-sent events out of bytes as they come, cut anywhere.

    events = EventSplitter()
    events.feed(b'data: {"a": 1}\\n')   # []
    events.feed(b"\\n")                 # ['{"a": 1}']

As the HTML standard has it: lines end in LF, CR or CRLF, an empty one ends the event, its data lines are
joined; comments and other fields say nothing here.
"""

from __future__ import annotations


class EventSplitter:
    """State between two pieces of one stream."""

    def __init__(self) -> None:
        self._rest = b""  # of a line that has not ended yet
        self._after_cr = False
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[str]:
        """The data of each event that this piece completes."""
        if self._after_cr and piece.startswith(b"\n"):  # the second half of an end that is known already
            piece = piece[1:]
        self._after_cr = piece.endswith(b"\r")
        *lines, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return [event for line in lines if (event := self._line(line)) is not None]

    def finish(self) -> list[str]:
        """What an event at the end of the stream had, whose empty line is missing."""
        ends = b"\n\n" if self._rest else b"\n"
        return self.feed(ends)

    def _line(self, line: bytes) -> str | None:
        if not line:
            event, self._data = "\n".join(self._data), []
            return event or None
        name, _, value = line.decode("utf-8", "replace").partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        return None
