"""Too few pages on the native runner: preempted requests are computed again, to the same ids and the same
bits of their log-probabilities."""

from __future__ import annotations

import pytest

from specserve.draft.ngram import NgramDrafter, Options
from specserve.models.decoder import Decoder
from specserve.models.runner import NativeRunner
from specserve.ops.native import WeightClass, make_pool
from specserve.types import Request, SamplingParams
from tests.support.checkpoints import VOCAB, configs, random_model
from tests.support.engine import Run, make_engine, request, run
from tests.support.native import library, load_packed

# Plain, windows, norms of heads, sandwich norms.
TARGETS: dict[str, WeightClass] = {
    "llama": "int4",
    "mistral": "bfloat16",
    "qwen3": "int8",
    "gemma3": "float32",
}
SAMPLED: list[dict[str, float]] = [
    {"temperature": 0.0},
    {"temperature": 0.8},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 0.0, "repetition_penalty": 1.2},
]


@pytest.fixture(scope="module", params=list(TARGETS))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder = tmp_path_factory.mktemp(request.param)
    random_model(configs()[request.param]).save_pretrained(folder)
    return load_packed(folder, TARGETS[request.param])


def requests() -> list[Request]:
    """Every other text is made of a few ids only, so that there is something to look up."""
    found = []
    for i in range(8):
        prompt = [(5 * i + j % (3 + i)) % VOCAB for j in range(6 + 3 * i)]
        options = {**SAMPLED[i // 2 % len(SAMPLED)], "allowed_token_ids": prompt[:3] if i % 2 else None}
        params = SamplingParams(**options, seed=i, max_tokens=40, logprobs=2)  # type: ignore[arg-type]
        found.append(request(str(i), prompt, params))
    return found


def serve(model: Decoder, k: int, num_pages: int, *, num_threads: int = 1, caching: bool = True) -> Run:
    engine = make_engine(
        model,
        NgramDrafter(Options(1, 3)) if k else None,
        k=k,
        num_pages=num_pages,
        page_size=8,
        max_model_len=80,
        budget=32,
        caching=caching,
        eos=None,
        pool=make_pool(library(), num_threads),
    )
    assert isinstance(engine.runner, NativeRunner)
    return run(engine, requests())


@pytest.fixture(scope="module")
def ample(model: Decoder) -> Run:
    found = serve(model, 0, 200)
    assert found.total("num_preemptions") == 0
    return found


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("k", [0, 4])
def test_preempted_requests_get_the_bits_of_those_that_never_lost_a_page(
    model: Decoder, ample: Run, k: int, caching: bool
) -> None:
    few = serve(model, k, 16, num_threads=2, caching=caching)
    assert few.total("num_preemptions") >= 5
    assert few.answers == ample.answers
    assert all(result.logprobs for result in few.results.values())
    assert (few.num_accepted > 20) == (k > 0)
