"""Text of one sequence, token by token: whole characters only, and nothing that may become a stop string.

    stream = TextStream(tokenizer, prompt_token_ids, stop=["\\n\\n"])
    stop = stream.feed(token)      # "\\n\\n" once that string is complete
    text = stream.take()           # what may be shown since the last time

All tokens together give the text that prompt and output decode to as a whole, from the last complete
character of the prompt on. One token costs the same at any length of the text.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import NamedTuple

from specserve.text.pieces import strip_leading
from specserve.text.tokenizer import Tokenizer

_LONGEST_CHARACTER = 4  # bytes, in UTF-8


class Match(NamedTuple):
    """A stop string and where it lies in the text searched."""

    stop: str
    start: int
    end: int


def find_stop(text: str, searched: int, stops: Sequence[str]) -> Match | None:
    """The stop string that completes first, past the first `searched` characters of `text`.

    It may begin before them. Of two that complete at the same place, the one listed first counts.
    """
    first: Match | None = None
    for stop in stops:
        start = text.find(stop, max(0, searched - len(stop) + 1))
        if start >= 0 and (first is None or start + len(stop) < first.end):
            first = Match(stop, start, start + len(stop))
    return first


class TextStream:
    """The incremental decoder of one sequence; not thread-safe, it belongs to the engine's thread.

    `spaces_between_special_tokens` is taken for compatibility: the decoders served here put no spaces
    there, whatever it says.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int],
        *,
        stop: Sequence[str] = (),
        include_stop: bool = False,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._skipped = tokenizer.all_special_ids if skip_special_tokens else frozenset()
        self._stops = tuple(stop)
        self._include_stop = include_stop
        self._num_held = max(map(len, self._stops), default=1) - 1
        self._stopped: str | None = None
        self._shown: list[str] = []  # released, in order
        self._num_taken = 0  # of `_shown`
        self._held = ""  # decoded, may still become part of a stop string
        tail = self._last_bytes(prompt_token_ids)
        self._leading_spaces = 0 if tail else tokenizer.leading_spaces
        _, num_read = codecs.utf_8_decode(tail, "replace", False)
        self._partial = tail[num_read:]  # bytes of a character that is not complete yet

    @property
    def text(self) -> str:
        """All text so far, cut at the stop."""
        return "".join(self._shown) + self._held

    def feed(self, token_id: int, *, check_stop: bool = True) -> str | None:
        """Add one token; return the stop string it completes, if any. After that, tokens change nothing.

        With `check_stop` False, stop strings that this token completes do not count; one that it only
        begins still may.
        """
        if self._stopped is not None:
            return self._stopped
        if token_id in self._skipped:
            return None
        data = self._token_bytes(token_id)
        if self._leading_spaces and data:
            data = self._without_leading(data)
        new, num_read = codecs.utf_8_decode(self._partial + data, "replace", False)
        self._partial = (self._partial + data)[num_read:]
        return self._add(new, check_stop) if new else None

    def take(self) -> str:
        """Text released since the last call."""
        new = "".join(self._shown[self._num_taken :])
        self._num_taken = len(self._shown)
        return new

    def finish(self) -> str:
        """All that was not taken yet, held back or not; an incomplete character becomes U+FFFD.

        Call it once, at the end.
        """
        if self._stopped is None:
            self._shown.append(self._held + self._partial.decode(errors="replace"))
            self._held, self._partial = "", b""
        return self.take()

    def _last_bytes(self, token_ids: Sequence[int]) -> bytes:
        """The last bytes of these tokens' text, enough to hold a character; empty if there is no text."""
        data = b""
        for token_id in reversed(token_ids):
            if token_id not in self._skipped:
                data = self._token_bytes(token_id) + data
            if len(data) >= _LONGEST_CHARACTER:
                break
        return data

    def _without_leading(self, data: bytes) -> bytes:
        """`data` without the spaces that a text loses at its start; only spaces came before it."""
        rest = strip_leading(data, self._leading_spaces)
        self._leading_spaces = 0 if rest else self._leading_spaces - len(data)
        return rest

    def _add(self, new: str, check_stop: bool) -> str | None:
        text = self._held + new
        match = find_stop(text, len(self._held), self._stops) if check_stop and self._stops else None
        if match is not None:
            self._stopped = match.stop
            self._show(text[: match.end if self._include_stop else match.start], "")
            return match.stop
        at = max(0, len(text) - self._num_held)
        self._show(text[:at], text[at:])
        return None

    def _show(self, text: str, held: str) -> None:
        if text:
            self._shown.append(text)
        self._held = held
