"""Events are the same wherever the stream was cut, and whatever ends its lines."""

from __future__ import annotations

import pytest

from specserve.bench.events import EventSplitter

STREAM = 'data: {"a": "é"}\n\n: a comment\n\nevent: x\nid: 1\ndata:one\ndata: two\ndata\n\ndata:  [DONE]\n\n'
EVENTS = ['{"a": "é"}', "one\ntwo", " [DONE]"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_cuts_and_ends_of_lines_change_nothing(end: str, size: int) -> None:
    data = STREAM.replace("data\n", "").replace("\n", end).encode()
    splitter = EventSplitter()
    found = [event for at in range(0, len(data), size) for event in splitter.feed(data[at : at + size])]
    assert found + splitter.finish() == EVENTS


def test_an_event_comes_with_its_empty_line_and_not_before() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\n") == []
    assert splitter.feed(b"\ndata: b") == ["a"]
    assert splitter.finish() == ["b"]
    assert splitter.finish() == []


def test_a_carriage_return_at_a_cut_is_half_an_end() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\r") == []
    assert splitter.feed(b"\n\r\n") == ["a"]
