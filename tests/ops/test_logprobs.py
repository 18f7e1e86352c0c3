"""Log-probabilities against PyTorch's log_softmax; ranks by counting."""

from __future__ import annotations

import pytest
import torch

from specserve.ops import logprobs


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 10.0])
@pytest.mark.parametrize("num_top", [0, 1, 20, 300, 400])
def test_values_ranks_and_top_ids_are_those_of_a_full_sort(scale: float, num_top: int) -> None:
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(3)) * scale
    logits = (logits * 4).round() / 4  # many ties
    ids = [0, 299, 7, 150, 3]
    values, ranks, top_values, top_ids = logprobs.reference(logits, ids, num_top)
    t = min(num_top, 300)
    assert top_values.shape == top_ids.shape == (5, t)
    assert ranks.shape == (5, 1 + t)
    truth = logits.double().log_softmax(1)
    for r, token in enumerate(ids):
        order = sorted(range(300), key=lambda i: (-float(logits[r, i]), i))[:t]
        assert top_ids[r].tolist() == order
        assert values[r] == pytest.approx(float(truth[r, token]), abs=2e-6)
        assert torch.allclose(top_values[r].double(), truth[r, order], rtol=0, atol=4e-6)
        expected = [int((logits[r] >= logits[r, i]).sum()) for i in [token, *order]]
        assert ranks[r].tolist() == expected


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    logits = torch.randn(6, 49_152, generator=torch.Generator().manual_seed(4)) * 3
    ids = [1, 20, 300, 4000, 49_151, 6]
    together = logprobs.reference(logits, ids, 5)
    for r in range(6):
        alone = logprobs.reference(logits[r : r + 1], ids[r : r + 1], 5)
        for one, several in zip(alone, together, strict=True):
            assert torch.equal(one[0], several[r])


def test_impossible_ids_come_last_with_minus_infinity() -> None:
    logits = torch.tensor([[-torch.inf, 1.0, torch.nan, 1.0]])
    values, ranks, top_values, top_ids = logprobs.reference(logits, [2], 4)
    assert values.tolist() == [-torch.inf]
    assert ranks.tolist() == [[4, 2, 2, 4, 4]]
    assert top_ids.tolist() == [[1, 3, 0, 2]]
    assert top_values[0, :2].exp().tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("value", [torch.nan, -torch.inf, torch.inf])
def test_a_row_without_information_is_uniform(value: float) -> None:
    values, _, top_values, top_ids = logprobs.reference(torch.full((1, 4), value), [3], 2)
    assert values.exp().tolist() == pytest.approx([0.25])
    assert top_values.exp().tolist() == [pytest.approx([0.25, 0.25])]
    assert top_ids.tolist() == [[0, 1]]


def test_the_argument_is_left_alone() -> None:
    logits = torch.tensor([[1.0, torch.nan, 2.0]])
    logprobs.reference(logits, [0], 2)
    assert logits.isnan().tolist() == [[False, True, False]]
