"""Philox4x32-10, the counter hash behind every draw (Salmon, Moraes, Dror, Shaw: "Parallel random numbers:
as easy as 1, 2, 3", 2011).

A draw is a pure function of (request seed, index of the token being drawn, purpose): no generator has a state
that could depend on the batch, on earlier steps, or on how many drafts there were. The layout:

    key      = seed, low and high 32 bits
    counter  = token id >> 2 | index, low 32 bits | purpose + (index >> 32 << 8) | 0

Of the four output words, word `id & 3` belongs to the token id. Computed on the host; equal on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Words = NDArray[np.uint64]  # values below 2**32, in 64 bits so that a product of two is exact
Ids = NDArray[np.int64]

# What a draw is for; purposes never share noise. The numbers belong to the promise "same seed, same text".
TARGET = 0  # the target's own token
ACCEPT = 1  # the uniform number of an acceptance test
RESIDUAL = 2  # the token that replaces a refused sampled draft
DRAFT = 3  # a token drawn by a drafter


def block_index(first: int, place: int) -> int:
    """The index of a draw at `place` in the block of guesses that begins with the token of index `first`.

    Guesses, and the numbers of a rule that looks ahead in its block, belong to the block: a position that is
    guessed again after a refusal must get fresh noise, because what follows a position may have decided over
    it. Place 0 has the index of its token; no token has the others, indices being below 2**32.
    """
    return place << 32 | first


_ROUNDS = 10
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(
    counter: Sequence[ArrayLike], key: Sequence[ArrayLike], n: int
) -> tuple[Words, Words, Words, Words]:
    """Four words for each of n counters of four words; the key's two words are scalars or [n].

    One round maps (c0, c1, c2, c3) to (high(M1 c2) ^ c1 ^ k0, low(M1 c2), high(M0 c0) ^ c3 ^ k1, low(M0 c0)).
    In place: a vocabulary's worth of temporaries would cost more than the arithmetic.
    """
    c0, c1, c2, c3 = (np.array(np.broadcast_to(np.asarray(c, np.uint64), (n,))) for c in counter)
    k0, k1 = (np.asarray(k, np.uint64) for k in key)
    p0, p1 = np.empty(n, np.uint64), np.empty(n, np.uint64)
    for _ in range(_ROUNDS):
        np.multiply(c0, _M0, out=p0)
        np.multiply(c2, _M1, out=p1)
        np.right_shift(p1, _HALF, out=c0)
        np.right_shift(p0, _HALF, out=c2)
        c0 ^= c1
        c0 ^= k0
        c2 ^= c3
        c2 ^= k1
        np.bitwise_and(p1, _LOW, out=c1)
        np.bitwise_and(p0, _LOW, out=c3)
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


def _hash(seeds: Words, indices: Words, blocks: Words, purpose: int) -> tuple[Words, Words, Words, Words]:
    third = np.uint64(purpose) | (indices >> _HALF << np.uint64(8))
    return philox((blocks, indices & _LOW, third, 0), (seeds & _LOW, seeds >> _HALF), len(blocks))


def words(seeds: Sequence[int] | Words, indices: Sequence[int] | Words, ids: Ids, purpose: int) -> Words:
    """[N]: one word for each of N triples (seed, index, token id)."""
    blocks = (ids >> 2).astype(np.uint64)
    out = _hash(np.asarray(seeds, np.uint64), np.asarray(indices, np.uint64), blocks, purpose)
    chosen: Words = np.stack(out)[ids & 3, np.arange(len(ids))]
    return chosen


def row_words(seed: int, index: int, vocab_size: int, purpose: int) -> Words:
    """[vocab_size]: the words of all token ids at one index, four for one hash; equal to `words`."""
    blocks = np.arange((vocab_size + 3) // 4, dtype=np.uint64)
    out = _hash(np.asarray(seed, np.uint64), np.asarray(index, np.uint64), blocks, purpose)
    return np.stack(out, axis=1).reshape(-1)[:vocab_size]


def uniforms(seeds: Sequence[int], indices: Sequence[int], purpose: int) -> NDArray[np.float64]:
    """[n]: one number in the open interval (0, 1) for each pair (seed, index): the word of token id 0."""
    hashed = words(seeds, indices, np.zeros(len(seeds), np.int64), purpose)
    return (hashed.astype(np.float64) + 0.5) * 2.0**-32
