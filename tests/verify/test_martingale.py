"""The martingale test of losslessness is right and has power: on a toy whose p and q are known by heart.

On the real model it runs in `tests/engine/test_smollm2_law.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from specserve.bench.fidelity import Sample
from specserve.types import Request, SamplingParams
from tests.support.backoff import Backoff
from tests.support.engine import make_engine, request
from tests.support.martingale import (
    BIASED,
    LOSSLESS,
    GuessDrafter,
    Law,
    Sum,
    Sums,
    Way,
    check_biased,
    check_unbiased,
    emit,
    measure,
    sets,
)
from tests.support.ops import fast_ops
from tests.support.stub import Floats, Ids, StubModel

OPS = fast_ops()
K, TOGETHER = 3, 32

# After each token the same numbers, shifted by it. The drafter overrates its favourite, and sees a difference
# between ids among which the target sees hardly any: a guess and its replacement have much to share.
P = torch.tensor([0.1, 0.25, 0.15, 0.15, 0.15, 0.1, 0.1])
Q = torch.tensor([0.6, 0.2, 0.08, 0.05, 0.03, 0.02, 0.02])
V = len(P)
COLUMNS = torch.tensor([3, 1, 0, 6, 2, 5, 4])
SETTINGS: dict[str, dict[str, Any]] = {"as it is": {}, "processed": {"temperature": 0.8, "top_k": 5}}


def shifted(row: torch.Tensor) -> torch.Tensor:
    """[V, V]: logits after each id."""
    return torch.stack([row.roll(i) for i in range(V)]).log()


def toy_law(settings: dict[str, Any], is_drawn: bool = True) -> tuple[StubModel, Law]:
    target, draft = shifted(P), shifted(Q)[:, COLUMNS]

    def rule(ids: Ids, first: int) -> Floats:
        return target[torch.from_numpy(ids[first:])].numpy().copy()

    def finished(sample: Sample) -> Iterator[torch.Tensor]:
        ids = np.array([*sample.prompt, *sample.answer][:-1], np.int64)
        yield from torch.from_numpy(rule(ids, len(sample.prompt) - 1)).split(10)

    rows = Law(
        finished, lambda texts: draft[[text[-1] for text in texts]], COLUMNS, is_drawn=is_drawn, **settings
    )
    return StubModel(rule, vocab_size=V), rows


def toy_requests(settings: dict[str, Any]) -> Iterator[Request]:
    """How many guesses a request wants differs, and does not depend on any."""
    for i in count():
        params = SamplingParams(
            **{"temperature": 1.0, **settings},
            max_tokens=10 + i % 20,
            seed=i,
            speculation={"num_speculative_tokens": 1 + i % K},
        )
        yield request(str(i), [i % V], params)


def toy_sums(way: Way, settings: dict[str, Any], num_tokens: int) -> Sums:
    model, of = toy_law(settings, is_drawn=way.is_drawn)
    engine = make_engine(
        model,
        GuessDrafter(OPS, way.guess(of)),
        k=K,
        num_pages=16 * TOGETHER,
        max_model_len=64,
        max_num_seqs=TOGETHER,
        budget=8 * TOGETHER,
        eos=None,
        ops=OPS,
        verify=way.verify,
    )
    samples, found = emit(engine, toy_requests(settings), num_tokens, TOGETHER)
    assert 0.05 * found.num_drafted < found.num_accepted
    sums = measure(of, samples)
    print(sums)
    return sums


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", LOSSLESS)
def test_what_a_lossless_rule_emits_is_the_targets(name: str, settings: str) -> None:
    sums = toy_sums(LOSSLESS[name], SETTINGS[settings], 3_000)
    assert sums.num_tokens >= 3_000
    check_unbiased(sums)


@pytest.mark.parametrize("name", BIASED)
def test_what_is_biased_is_refused(name: str) -> None:
    check_biased(name, toy_sums(BIASED[name], {}, 6_000))


# --- the parts --------------------------------------------------------------------------------


def test_the_sets_of_an_example_worked_by_hand() -> None:
    """Id 2 is overrated; of the others' 0.8 the drafter's favourites may take 0.4."""
    p = torch.tensor([[0.1, 0.25, 0.2, 0.25, 0.15]])  # 0.05 lies where the drafter knows nothing
    q = torch.tensor([[0.05, 0.2, 0.6, 0.1, 0.05]])
    in_a, in_b = sets(p, q, q.log())
    assert in_a.tolist() == [[False, False, True, False, False]]
    assert in_b.tolist() == [[False, True, False, False, False]]
    (in_b,) = sets(p, q, torch.tensor([[3.0, 1.0, 9.0, 2.0, 0.0]]))[1]
    assert in_b.tolist() == [True, False, False, True, False]


def test_one_hot_guesses_make_a_the_guess() -> None:
    _, of = toy_law({}, is_drawn=False)
    draft = of.draft([(i,) for i in range(V)])
    p = of.target_probs(shifted(P))
    in_a, in_b = sets(p, of.draft_probs(draft), draft)
    assert torch.equal(in_a.nonzero()[:, 1], draft.argmax(1))
    assert in_b.any(1).all()
    assert (torch.where(in_b, p, 0.0).sum(1) <= 0.5).all()


def test_z_of_true_draws_is_standard_normal() -> None:
    """400 runs of 500 tokens: z has mean 0 and variance 1, within four standard errors of each."""
    generator = torch.Generator().manual_seed(0)
    chances = torch.rand(400, 500, generator=generator, dtype=torch.float64) ** 2
    hits = torch.rand(400, 500, generator=generator, dtype=torch.float64) < chances
    found = []
    for chance, is_hit in zip(chances, hits, strict=True):
        one = Sum()
        one.add(chance[:200], is_hit[:200])
        one.add(chance[200:], is_hit[200:])
        found.append(one.z)
    z = np.array(found)
    assert abs(z.mean()) < 4 / 400**0.5
    assert abs(z.var() - 1) < 4 * (2 / 400) ** 0.5


def test_a_backed_off_count_is_the_formula() -> None:
    """The texts hold four 2s, three 4s and two 9s; after 4 came 2 twice and 9 once."""
    model = Backoff([[2, 4, 2, 9], [2, 4, 2], [4, 9]], order=1, weight=2.0)
    assert model.ids.tolist() == [2, 4, 9]
    q = model.rows([[], [7, 4], [7]]).exp()
    even = torch.full((3,), 1 / 3)
    first = (torch.tensor([4.0, 3.0, 2.0]) + 2 * even) / 11
    assert torch.allclose(q[0], first)
    assert torch.allclose(q[1], (torch.tensor([2.0, 0.0, 1.0]) + 2 * first) / 5)
    assert torch.allclose(q[2], first), "an unseen context says nothing"


def test_emitting_goes_on_until_there_are_enough_tokens_and_finishes_what_it_began() -> None:
    model, of = toy_law({})
    drafter = GuessDrafter(OPS, LOSSLESS["coupled"].guess(of))
    engine = make_engine(model, drafter, k=K, num_pages=256, max_model_len=64, eos=None)
    samples, found = emit(engine, toy_requests({}), 500, 8)
    assert [len(sample.answer) for sample in samples] == [10 + i % 20 for i in range(len(samples))]
    assert found.total("num_generation_tokens") == sum(len(sample.answer) for sample in samples)
    assert 500 <= found.total("num_generation_tokens") < 500 + 8 * 29
