"""The three ways of choosing a guess."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specserve.ops.philox import DRAFT, TARGET, block_index
from specserve.sampling.guess import Method, draft_probs, guess
from specserve.types import Ask
from tests.support.law import check_law
from tests.support.ops import fast_ops

OPS = fast_ops()
LOGITS = torch.tensor([0.5, 2.0, -1.0, 1.0])
IDS = torch.tensor([9, 4, 30, 2])


def asks(n: int, temperature: float = 1.0, index: int = 12) -> list[Ask]:
    return [Ask(i, range(index), 4, temperature, seed=i) for i in range(n)]


@pytest.mark.parametrize("method", ["greedy", "probabilistic", "coupled"])
@pytest.mark.parametrize("ids", [None, IDS])
def test_at_temperature_0_it_is_the_best_guess_and_drawn_from_nothing(
    method: Method, ids: torch.Tensor | None
) -> None:
    tokens, q = guess(OPS, method, LOGITS.repeat(3, 1), asks(3, 0.0), [0, 1, 2], ids)
    assert tokens == [1 if ids is None else 4] * 3
    assert q is None
    assert draft_probs(asks(3, 0.0), [q]) is None


def test_greedy_takes_the_best_at_any_temperature() -> None:
    tokens, q = guess(OPS, "greedy", LOGITS.repeat(2, 1), asks(2, 0.7), [0, 0], IDS)
    assert (tokens, q) == ([4, 4], None)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("ids", [None, IDS])
@pytest.mark.parametrize("method", ["probabilistic", "coupled"])
def test_it_is_drawn_from_the_logits_over_the_temperature(
    method: Method, ids: torch.Tensor | None, temperature: float
) -> None:
    n = 6_000
    law = (LOGITS.double() / temperature).softmax(0).numpy()
    tokens, q = guess(OPS, method, LOGITS.repeat(n, 1), asks(n, temperature), [1] * n, ids)
    columns = tokens if ids is None else [IDS.tolist().index(token) for token in tokens]
    check_law(np.bincount(columns, minlength=4), law)
    if method == "probabilistic":
        assert q is not None
        assert np.allclose(q.numpy(), law, atol=1e-6)
    else:
        assert q is None


def test_probabilistic_noise_belongs_to_the_block_and_its_place() -> None:
    rows = torch.randn(5, 50, generator=torch.Generator().manual_seed(0))
    ask = Ask(0, range(7), 5, 1.0, seed=3)
    tokens, _ = guess(OPS, "probabilistic", rows, [ask] * 5, list(range(5)))
    keys = [block_index(7, place) for place in range(5)]
    assert tokens == OPS.draw(rows, [1.0] * 5, [3] * 5, keys, DRAFT).tolist()


def test_coupled_noise_is_the_targets_own_over_target_ids() -> None:
    """The same logits give the target's own tokens; a part of the ids gives the best of that part."""
    rows = torch.randn(200, 50, generator=torch.Generator().manual_seed(1))
    asking, places = asks(200), [i % 4 for i in range(200)]
    own = OPS.draw(rows, [1.0] * 200, list(range(200)), [12 + place for place in places], TARGET).tolist()
    assert guess(OPS, "coupled", rows, asking, places)[0] == own
    ids = torch.randperm(50, generator=torch.Generator().manual_seed(2))[:30]
    part, _ = guess(OPS, "coupled", rows[:, ids], asking, places, ids)
    assert set(part) <= set(ids.tolist())
    assert all(one == other for one, other in zip(part, own, strict=True) if other in set(ids.tolist()))


def test_greedy_and_random_requests_share_a_call() -> None:
    asking = [Ask(0, range(5), 1, 0.0, seed=1), Ask(1, range(5), 1, 2.0, seed=1)]
    tokens, q = guess(OPS, "probabilistic", LOGITS.repeat(2, 1), asking, [0, 0], IDS)
    assert tokens[0] == 4
    found = draft_probs(asking, [q, q], IDS)
    assert found is not None
    assert found[0] is None
    assert found[1] is not None
    assert found[1].ids is IDS
    assert torch.allclose(found[1].probs, (LOGITS / 2).softmax(0).expand(2, 4))
