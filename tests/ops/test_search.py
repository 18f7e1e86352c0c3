"""Both indexes give the answers of the definition, over any growth."""

from __future__ import annotations

from random import Random

import pytest

from specserve.draft.ngram import Options, find
from specserve.ops.search import Endings, Index, NativeIndex, PythonIndex
from tests.support.native import library

KINDS = ["python", "native"]


def make(kind: str, endings: Endings) -> Index:
    return PythonIndex(endings) if kind == "python" else NativeIndex(endings, library())


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_equals_the_definition_however_the_text_grows(kind: str) -> None:
    random = Random(0)
    for _ in range(300):
        low = random.randint(1, 4)
        endings = Endings(low, low + random.randint(0, 4), random.random() < 0.5)
        options = Options(endings.low, endings.high, "earliest" if endings.earliest else "recent")
        alphabet = random.choice([1, 2, 4, 30])
        text = [random.randrange(alphabet) for _ in range(60)]
        index, length = make(kind, endings), 0
        while length < len(text):
            length += random.choice([0, 1, 1, 2, 9])
            if random.random() < 0.05:
                length = random.randint(0, length)  # shorter: a text that begins anew
            tokens = text[:length]
            position = index.follow(tokens)
            found = [] if position is None else tokens[position : position + 5]
            assert found == find(tokens, options, 5)


def test_both_indexes_agree_on_long_texts_and_large_ids() -> None:
    random = Random(1)
    for alphabet in (3, 50, 2000):
        words = [random.randrange(2**40) for _ in range(alphabet)]
        text = [random.choice(words) for _ in range(3000)]
        for endings in (Endings(2, 4, earliest=False), Endings(1, 9, earliest=True)):
            python, native = make("python", endings), make("native", endings)
            for length in (*range(1, 40), *range(2500, 3001, 7)):
                assert python.follow(text[:length]) == native.follow(text[:length])


@pytest.mark.parametrize("kind", KINDS)
def test_texts_shorter_than_the_ending_have_no_answer(kind: str) -> None:
    index = make(kind, Endings(3, 5, earliest=False))
    assert [index.follow(tokens) for tokens in ([], [1], [1, 1], [1, 1, 1])] == [None] * 4
    assert index.follow([1, 1, 1, 1]) == 3
