"""How named splits cut text into words."""

from __future__ import annotations

import pytest

from specserve.text.pieces import byte_level
from specserve.text.splits import SPLITS


def words(name: str, text: str) -> list[str]:
    return [byte_level(word).decode() for word, _ in SPLITS[name].pre_tokenizer().pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", ["I", "'m", " here", ":", " 1234", "\n", "\n", "5", "  ", " x", " WE", "'", "LL"]),
        (
            "smollm",
            ["I", "'m", " here", ":", " ", "1", "2", "3", "4", "\n\n", "5", "  ", " x", " WE", "'", "LL"],
        ),
        ("llama-bpe", ["I", "'m", " here", ":", " ", "123", "4", "\n\n", "5", "  ", " x", " WE", "'LL"]),
        ("qwen2", ["I", "'m", " here", ":", " ", "1", "2", "3", "4", "\n\n", "5", "  ", " x", " WE", "'LL"]),
        ("tekken", ["I", "'m", " here", ":", " ", "1", "2", "3", "4", "\n\n", "5", "  ", " x", " WE", "'LL"]),
    ],
)
def test_words_of(name: str, expected: list[str]) -> None:
    assert words(name, "I'm here: 1234\n\n5   x WE'LL") == expected


def test_tekken_cuts_where_case_changes() -> None:
    assert words("tekken", "camelCase HTTPServer") == ["camel", "Case", " HTTPServer"]


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize("text", ["", " ", "\n \n", "a  b\t\tc\r\n", "你好 ½ ²x", "👩‍👩‍👧 … \u00a0 end "])
def test_nothing_is_lost(name: str, text: str) -> None:
    assert "".join(words(name, text)) == text
