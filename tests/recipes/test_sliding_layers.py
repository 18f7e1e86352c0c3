"""Recipe 20 for what is served: sliding windows. Rows of refused guesses lie past the window, never in it.

Targets with recurrent state are refused by name when a checkpoint is loaded.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from specserve.draft.ngram import NgramDrafter, Options
from tests.support.checkpoints import configs, load, random_model
from tests.support.drafters import short_lists
from tests.support.engine import greedy, make_engine, request, run
from tests.support.traffic import sampled

SLIDING = [name for name, config in configs().items() if getattr(config, "sliding_window", None)]


@pytest.mark.parametrize("name", SLIDING)
def test_recipe_20_sliding_layers_and_rejection(tmp_path: Path, name: str) -> None:
    config = configs()[name]
    random_model(config).save_pretrained(tmp_path)
    model = load(tmp_path)
    assert config.sliding_window < 40
    kinds = [greedy(40, ignore_eos=True), sampled(40, seed=4, temperature=1.0, ignore_eos=True)]
    prompts = [[5, 6, 7, 8] * 5, [9, 5, 6] * 7, list(range(3, 40)), [11, 12] * 9]
    requests = [request(f"r{n}", prompt, kinds[n % 2]) for n, prompt in enumerate(prompts)]
    drafter = short_lists(NgramDrafter(Options(1, 3)))
    engine = make_engine(
        model, drafter, k=6, num_pages=24, page_size=4, max_model_len=80, budget=16, eos=None
    )
    found = run(engine, requests)
    expected = {}
    for one in requests:
        alone = make_engine(model, num_pages=24, page_size=4, max_model_len=80, caching=False, eos=None)
        expected |= run(alone, [one]).results
    assert {key: result.token_ids for key, result in found.results.items()} == {
        key: result.token_ids for key, result in expected.items()
    }
    assert found.total("num_preemptions") > 0
    assert 0 < found.num_accepted < found.num_drafted, "some guesses were kept and some refused"
