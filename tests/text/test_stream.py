"""Streaming equals decoding everything at once, with every cut where it belongs."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specserve.text.stream import Match, TextStream, find_stop
from specserve.text.tokenizer import Tokenizer
from tests.support.vocabularies import byte_level_tokenizer, sentencepiece_tokenizer

BYTE_LEVEL = byte_level_tokenizer()
SENTENCEPIECE = sentencepiece_tokenizer()
TOKENIZERS = {
    "byte level": BYTE_LEVEL,
    "prefix": SENTENCEPIECE,
    "gemma": sentencepiece_tokenizer(prefix=False),
}
WORDS = ["hello", " world", "lo w", "l", "o", "ld!", "你", "🙂", "é", "the quick", " ", "  ", "�", "<|end|>"]


# Every beginning of a character of several bytes; 64 neighbours differ in the last byte only.
BEGINNINGS = {
    chr(code).encode()[:length]
    for code in range(0x80, 0x110000, 64)
    if not 0xD800 <= code < 0xE000
    for length in range(1, len(chr(code).encode()))
}


def visible_bytes(tokenizer: Tokenizer, ids: list[int], skip: bool) -> bytes:
    skipped = tokenizer.all_special_ids if skip else frozenset()
    return b"".join(tokenizer.token_bytes(token) for token in ids if token not in skipped)


def begun_character(data: bytes) -> bytes:
    """What `data` ends with if that may still become a character."""
    return next((data[-length:] for length in (3, 2, 1) if data[-length:] in BEGINNINGS), b"")


def brute_force(
    tokenizer: Tokenizer,
    prompt: list[int],
    output: list[int],
    stops: list[str],
    include: bool,
    skip: bool,
    min_tokens: int,
) -> tuple[str, str | None, int]:
    """Text, stop string and tokens used: after each token decode everything, look for a stop in what is new.

    The text goes from the last whole character of the prompt on; where it begins, a leading space goes.
    """
    before = visible_bytes(tokenizer, prompt, skip)
    seen = 0
    for used in range(len(output) + 1):
        data = visible_bytes(tokenizer, output[:used], skip)
        if not before and tokenizer.leading_spaces:
            data = data.removeprefix(b" ")
        data = begun_character(before) + data
        text = data.removesuffix(begun_character(data)).decode(errors="replace")
        for end in range(seen + 1, len(text) + 1):
            for stop in stops:
                if used > min_tokens and text[:end].endswith(stop):
                    return text[: end if include else end - len(stop)], stop, used
        seen = len(text)
    return data.decode(errors="replace"), None, len(output)


@st.composite
def token_ids(draw: st.DrawFn, tokenizer: Tokenizer, max_size: int) -> list[int]:
    """Any ids, mixed with those of words: random ids alone are hardly ever whole characters."""
    anything = st.lists(st.integers(0, tokenizer.vocab_size - 1), min_size=1, max_size=3)
    word = st.sampled_from(WORDS).map(lambda text: tokenizer.encode(text, add_special_tokens=False))
    return [token for part in draw(st.lists(anything | word, max_size=max_size)) for token in part]


@settings(max_examples=400, deadline=None)
@given(st.data(), st.sampled_from(sorted(TOKENIZERS)))
def test_streaming_equals_decoding_everything_at_once(data: st.DataObject, name: str) -> None:
    tokenizer = TOKENIZERS[name]
    prompt = data.draw(token_ids(tokenizer, 3), "prompt")
    output = data.draw(token_ids(tokenizer, 8), "output")
    text = visible_bytes(tokenizer, output, skip=True).decode(errors="replace")
    inner = st.tuples(st.integers(0, len(text)), st.integers(1, 8)).map(lambda at: text[at[0] : sum(at)])
    stop = (st.text(st.sampled_from("helo wrd!你�"), min_size=1, max_size=4) | inner).filter(bool)
    stops = data.draw(st.lists(stop, max_size=4), "stops")
    include, skip = data.draw(st.booleans(), "include"), data.draw(st.booleans(), "skip")
    min_tokens = data.draw(st.integers(0, 6), "min_tokens")

    expected = brute_force(tokenizer, prompt, output, stops, include, skip, min_tokens)
    stream = TextStream(tokenizer, prompt, stop=stops, include_stop=include, skip_special_tokens=skip)
    pieces: list[str] = []
    found, used = None, 0
    for used, token in enumerate(output, 1):
        found = stream.feed(token, check_stop=used > min_tokens)
        pieces.append(stream.take())
        assert expected[0].startswith("".join(pieces)), "text was released that does not belong to the result"
        if found is not None:
            break
    pieces.append(stream.finish())
    assert ("".join(pieces), found, used) == expected
    assert stream.text == expected[0]


@settings(deadline=None)
@given(st.data())
def test_without_stops_the_stream_is_the_librarys_decoding(data: st.DataObject) -> None:
    ids = data.draw(token_ids(BYTE_LEVEL, 10))
    stream = TextStream(BYTE_LEVEL, [])
    text = ""
    for token in ids:
        assert stream.feed(token) is None
        text += stream.take()
    assert text + stream.finish() == BYTE_LEVEL.decode(ids)


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=3), max_size=6))
@example([b"\xed", b"\xa0\x80"])
@example([b"\xf0\x9f", b"\x98", b"x"])
def test_malformed_bytes_read_the_same_in_any_pieces(chunks: list[bytes]) -> None:
    first = BYTE_LEVEL_IDS
    ids = [first[byte] for chunk in chunks for byte in chunk]
    stream = TextStream(BYTE_LEVEL, [])
    for token in ids:
        stream.feed(token)
    assert stream.finish() == b"".join(chunks).decode(errors="replace")


BYTE_LEVEL_IDS = {
    BYTE_LEVEL.token_bytes(token)[0]: token
    for token in range(BYTE_LEVEL.vocab_size)
    if len(BYTE_LEVEL.token_bytes(token)) == 1
}


def run(stream: TextStream, text: str) -> list[str | None]:
    return [stream.feed(BYTE_LEVEL_IDS[byte]) for byte in text.encode()]


def test_no_half_character_is_released() -> None:
    stream = TextStream(BYTE_LEVEL, [])
    for byte in "🙂".encode()[:-1]:
        stream.feed(BYTE_LEVEL_IDS[byte])
        assert stream.take() == ""
    stream.feed(BYTE_LEVEL_IDS["🙂".encode()[-1]])
    assert stream.take() == "🙂"


def test_an_unfinished_character_is_one_replacement_at_the_end() -> None:
    stream = TextStream(BYTE_LEVEL, [])
    for byte in b"a\xf0\x9f\x98":
        stream.feed(BYTE_LEVEL_IDS[byte])
    assert stream.text == "a"
    assert (stream.take(), stream.finish()) == ("a", "�")
    assert stream.text == "a�"


def test_a_character_that_the_prompt_began_is_completed() -> None:
    head, tail = "你".encode()[:2], "你!".encode()[2:]
    stream = TextStream(BYTE_LEVEL, [BYTE_LEVEL_IDS[byte] for byte in b"x" + head])
    for byte in tail:
        stream.feed(BYTE_LEVEL_IDS[byte])
    assert stream.finish() == "你!"


@pytest.mark.parametrize(
    ("prompt", "expected"), [("", "hello"), ("<s>", "hello"), ("hello", " hello"), ("!", " hello")]
)
def test_the_leading_space_goes_only_where_the_text_begins(prompt: str, expected: str) -> None:
    token = next(t for t in range(SENTENCEPIECE.vocab_size) if SENTENCEPIECE.token_bytes(t) == b" hello")
    stream = TextStream(SENTENCEPIECE, SENTENCEPIECE.encode(prompt))
    stream.feed(token)
    assert stream.finish() == expected


def test_as_many_characters_are_held_back_as_a_stop_could_begin_with() -> None:
    stream = TextStream(BYTE_LEVEL, [], stop=["xx", "####"])
    run(stream, "abcdef")
    assert stream.take() == "abc"
    assert stream.text == "abcdef"
    assert stream.finish() == "def"


def test_without_stops_nothing_is_held_back() -> None:
    stream = TextStream(BYTE_LEVEL, [])
    run(stream, "ab")
    assert (stream.take(), stream.take(), stream.finish()) == ("ab", "", "")


@pytest.mark.parametrize(("include", "expected"), [(False, "say "), (True, "say STOP")])
def test_the_text_ends_at_the_stop_string(include: bool, expected: str) -> None:
    stream = TextStream(BYTE_LEVEL, [], stop=["STOP"], include_stop=include)
    assert run(stream, "say STOP")[-1] == "STOP"
    assert stream.take() + stream.finish() == expected
    assert stream.text == expected


def test_a_stop_inside_one_token_cuts_the_token() -> None:
    (token,) = SENTENCEPIECE.encode("hello", add_special_tokens=False)
    stream = TextStream(SENTENCEPIECE, [], stop=["lo!", "el"])
    assert stream.feed(token) == "el"
    assert stream.finish() == "h"


def test_tokens_after_the_stop_change_nothing() -> None:
    stream = TextStream(BYTE_LEVEL, [], stop=["!"])
    assert run(stream, "a!b?")[1:] == ["!", "!", "!"]
    assert stream.take() == stream.text == "a"
    assert stream.finish() == ""


def test_a_stop_that_completes_unchecked_does_not_count() -> None:
    stream = TextStream(BYTE_LEVEL, [], stop=["ab"])
    unchecked = [stream.feed(BYTE_LEVEL_IDS[byte], check_stop=False) for byte in b"aba"]
    assert unchecked == [None, None, None]
    assert stream.feed(BYTE_LEVEL_IDS[ord("c")]) is None
    assert stream.finish() == "abac"


def test_a_stop_that_only_begins_unchecked_counts() -> None:
    stream = TextStream(BYTE_LEVEL, [], stop=["ab"])
    stream.feed(BYTE_LEVEL_IDS[ord("a")], check_stop=False)
    assert stream.feed(BYTE_LEVEL_IDS[ord("b")]) == "ab"
    assert stream.finish() == ""


def test_special_tokens_show_on_request_only() -> None:
    ids = BYTE_LEVEL.encode("the<|end|>the")
    texts = []
    for skip in (True, False):
        stream = TextStream(BYTE_LEVEL, [], skip_special_tokens=skip)
        for token in ids:
            stream.feed(token)
        texts.append(stream.finish())
    assert texts == ["thethe", "the<|end|>the"]


@pytest.mark.parametrize(
    ("text", "searched", "stops", "expected"),
    [
        ("abcabc", 0, ["bc"], Match("bc", 1, 3)),
        ("abcabc", 0, ["cab", "bc"], Match("bc", 1, 3)),
        ("abcabc", 3, ["bc"], Match("bc", 4, 6)),
        ("abcabc", 2, ["bc"], Match("bc", 1, 3)),
        ("abc", 0, ["bc", "abc"], Match("bc", 1, 3)),
        ("abc", 0, ["abc", "bc"], Match("abc", 0, 3)),
        ("abc", 3, ["c"], None),
        ("abc", 0, [], None),
    ],
)
def test_the_stop_that_completes_first_is_found(
    text: str, searched: int, stops: list[str], expected: Match | None
) -> None:
    assert find_stop(text, searched, stops) == expected
