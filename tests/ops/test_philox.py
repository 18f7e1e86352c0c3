"""The counter hash against its authors' vectors and a scalar twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specserve.ops.philox import (
    ACCEPT,
    DRAFT,
    RESIDUAL,
    TARGET,
    block_index,
    philox,
    row_words,
    uniforms,
    words,
)

LOW = 2**32 - 1


def scalar_philox(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds in plain integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & LOW, (a >> 32) ^ c3 ^ k1, a & LOW
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return [c0, c1, c2, c3]


def scalar_word(seed: int, index: int, token: int, purpose: int) -> int:
    """The layout promised in the module's docstring."""
    counter = [token >> 2, index & LOW, purpose + (index >> 32 << 8), 0]
    return scalar_philox(counter, [seed & LOW, seed >> 32])[token & 3]


KNOWN_ANSWERS = [  # counter, key, result: the vectors published with Random123
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_known_answers(counter: str, key: str, result: str) -> None:
    c, k, r = ([int(word, 16) for word in text.split()] for text in (counter, key, result))
    assert [int(word[0]) for word in philox(c, k, 1)] == r
    assert scalar_philox(c, k) == r


WORD64 = st.integers(0, 2**64 - 1)
INDEX = st.one_of(st.integers(0, 2**20), st.integers(0, 2**55))


@settings(deadline=None)
@given(
    st.lists(st.tuples(WORD64, INDEX, st.integers(0, 2**20)), min_size=1, max_size=6),
    st.integers(0, 255),
)
def test_words_follow_the_layout(triples: list[tuple[int, int, int]], purpose: int) -> None:
    seeds, indices, ids = zip(*triples, strict=True)
    found = words(seeds, indices, np.array(ids), purpose)
    assert found.tolist() == [scalar_word(*triple, purpose) for triple in triples]


@pytest.mark.parametrize("vocab_size", [1, 3, 4, 5, 32, 1001])
def test_a_whole_row_has_the_words_of_its_ids(vocab_size: int) -> None:
    seed, index = 2**63 + 5, 2**33 + 7
    ids = np.arange(vocab_size)
    row = row_words(seed, index, vocab_size, DRAFT)
    assert row.tolist() == words([seed] * vocab_size, [index] * vocab_size, ids, DRAFT).tolist()


def test_seed_index_id_and_purpose_each_give_other_words() -> None:
    variants = [(1, 1, 1, 1)]
    variants += [(2, 1, 1, 1), (1 + 2**32, 1, 1, 1), (1, 2, 1, 1), (1, 1 + 2**32, 1, 1)]
    variants += [(1, 1, 2, 1), (1, 1, 5, 1), (1, 1, 1, 2)]
    found = {
        int(words([seed], [index], np.array([token]), purpose)[0]) for seed, index, token, purpose in variants
    }
    assert len(found) == len(variants)
    assert len({TARGET, ACCEPT, RESIDUAL, DRAFT}) == 4


def test_a_block_shares_noise_with_no_other_block_and_no_token() -> None:
    indices = {block_index(first, place) for first in (1, 2, 3, 2**31) for place in range(130)}
    assert len(indices) == 4 * 130
    assert block_index(7, 0) == 7
    assert min(block_index(1, place) for place in range(1, 130)) >= 2**32
    assert max(indices) < 2**56  # what the counter holds


def test_uniforms_lie_strictly_inside_the_unit_interval_and_fill_it() -> None:
    u = uniforms(range(40_000), [3] * 40_000, ACCEPT)
    assert 0.0 < u.min() < 1e-3
    assert 1 - 1e-3 < u.max() < 1.0
    counts = np.histogram(u, bins=50, range=(0, 1))[0]
    assert ((counts - 800) ** 2 / 800).sum() < 49 + 5 * np.sqrt(2 * 49)
    assert u[7] == (scalar_word(7, 3, 0, ACCEPT) + 0.5) / 2**32
