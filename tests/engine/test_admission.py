"""From a request to its sequences."""

from __future__ import annotations

import pytest

from specserve.config.scheduler import SchedulerConfig
from specserve.engine.admission import Admission, Vocabulary, truncate_prompt
from specserve.errors import InvalidRequest
from specserve.types import SamplingParams
from tests.support.engine import EOS, greedy, letters, request
from tests.support.traffic import sampled


def admission(engine_seed: int = 0, **options: object) -> Admission:
    more = {name: options.pop(name) for name in list(options) if name in ("policy", "enable_prefix_caching")}
    config = SchedulerConfig(max_model_len=16, max_num_seqs=4, **more)  # type: ignore[arg-type]
    tokenizer = options.pop("tokenizer", letters())
    vocabulary = Vocabulary(32, EOS, frozenset({30}))
    return Admission(config, vocabulary, tokenizer, engine_seed=engine_seed, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "params", "param", "words"),
    [
        ([], greedy(), "prompt", "at least one token"),
        ([1] * 16, greedy(), "prompt", "maximum context length is 16 tokens; the prompt has 16"),
        ([1, 32], greedy(), "prompt", r"token id 32, outside the vocabulary \[0, 32\)"),
        ([1, -1], greedy(), "prompt", "token id -1"),
        ([1], greedy(stop_token_ids=[40]), "stop_token_ids", "token id 40"),
        ([1], greedy(allowed_token_ids=[3, 32]), "allowed_token_ids", "token id 32"),
        ([1], greedy(logit_bias={77: 1.0}), "logit_bias", "token id 77"),
        ([1], greedy(logprobs=21), "logprobs", "logprobs=21 is more than --max-logprobs 20"),
        ([1], greedy(logprobs=-1), "logprobs", "logprobs=-1 asks for all tokens, which is more than"),
        ([1], greedy(prompt_logprobs=21), "prompt_logprobs", "prompt_logprobs=21"),
    ],
)
def test_what_can_never_be_served_is_refused_by_name(
    prompt: list[int], params: SamplingParams, param: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        admission().check(request("a", prompt, params))
    assert caught.value.param == param


def test_the_longest_prompt_leaves_one_token() -> None:
    (seq,) = admission().admit(request("a", [1] * 15, greedy(9)))
    assert seq.max_tokens == 1


def test_all_logprobs_are_allowed_when_configured() -> None:
    admission(max_logprobs=-1).check(request("a", [1], greedy(logprobs=-1, prompt_logprobs=500)))


def test_a_priority_needs_the_policy() -> None:
    with pytest.raises(InvalidRequest, match="--scheduling-policy priority"):
        admission().check(request("a", [1], priority=1))
    admission(policy="priority").check(request("a", [1], priority=1))


def test_bad_words_and_texts_need_a_tokenizer() -> None:
    with pytest.raises(InvalidRequest, match="bad_words needs a tokenizer"):
        admission(tokenizer=None).check(request("a", [1], greedy(bad_words=["x"])))
    (seq,) = admission(tokenizer=None).admit(request("a", [1], greedy()))
    assert seq.stream is None
    (seq,) = admission().admit(request("a", [1], greedy(detokenize=False)))
    assert seq.stream is None


def test_max_tokens_is_cut_to_the_context() -> None:
    for asked, given in ((None, 13), (5, 5), (100, 13)):
        (seq,) = admission().admit(request("a", [1, 2, 3], greedy(asked)))  # type: ignore[arg-type]
        assert seq.max_tokens == given


def test_ignoring_the_end_leaves_only_the_requests_own_stops() -> None:
    (seq,) = admission().admit(request("a", [1], greedy(stop_token_ids=[7])))
    assert (seq.eos_token_id, seq.stop_token_ids) == (EOS, {7, 30})
    (seq,) = admission().admit(request("a", [1], greedy(stop_token_ids=[7], ignore_eos=True)))
    assert (seq.eos_token_id, seq.stop_token_ids) == (None, {7})


def test_choices_have_the_seed_and_those_after_it() -> None:
    seqs = admission().admit(request("a", [1], sampled(n=3, seed=2**63 - 2)))
    assert [seq.seed for seq in seqs] == [2**63 - 2, 2**63 - 1, 2**63]
    assert [seq.index for seq in seqs] == [0, 1, 2]
    assert [seq.leader for seq in seqs] == [None, seqs[0], seqs[0]]
    (seq,) = admission().admit(request("a", [1], sampled(seed=-1)))
    assert seq.seed == 2**64 - 1


def test_without_a_seed_each_sequence_has_its_own_by_engine_seed_and_arrival() -> None:
    def seeds(engine_seed: int) -> list[int]:
        made = admission(engine_seed=engine_seed)
        return [s.seed for name in "ab" for s in made.admit(request(name, [1], sampled(n=2, seed=None)))]

    assert seeds(1) == seeds(1)
    assert len({*seeds(1), *seeds(2)}) == 8


def test_tenants_have_their_own_roots_and_without_caching_only_choices_share() -> None:
    def root(tenant: str = "", caching: bool = True, name: str = "a", **params: int) -> bytes | None:
        made = admission(enable_prefix_caching=caching)
        return made.admit(request(name, [1], sampled(**params), tenant=tenant))[-1].table.root

    assert root("x") == root("x") != root("y")
    assert root(caching=False) is None
    private = root(caching=False, n=2)
    assert private is not None
    assert len({private, root(caching=False, n=2, name="b"), root("a"), root("request\0a")}) == 4


def test_a_word_is_banned_at_a_texts_start_and_behind_a_space() -> None:
    class Leading:
        """A tokenizer that knows words by their leading space."""

        all_special_ids: frozenset[int] = frozenset()

        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            ids = {"no": [5, 6], " no": [9, 6], "x": [4], " x": [3, 4], " ": [3], "  ": [3, 3]}
            return ids[text]

    made = admission(tokenizer=Leading())
    assert made._bad_words_ids(greedy(bad_words=["no"])) == [[5, 6], [9, 6]]
    assert made._bad_words_ids(greedy(bad_words=[" no", "x"])) == [[5, 6], [9, 6], [4]]
    assert made._bad_words_ids(greedy(bad_words=[" ", "x"])) == [[3], [4]]


def test_a_truncated_prompt_keeps_its_end() -> None:
    prompt = list(range(20))
    assert truncate_prompt(prompt, None, 16) == prompt
    assert truncate_prompt(prompt, 3, 16) == [17, 18, 19]
    assert truncate_prompt(prompt, -1, 16) == prompt[5:]
    assert truncate_prompt([1, 2], 3, 16) == [1, 2]
