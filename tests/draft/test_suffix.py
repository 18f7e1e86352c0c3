"""Suffix decoding: the guesses by definition, whose texts they come from, and what is left of whom."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from specserve.draft.suffix import Options, SuffixDrafter, build, make_stores
from specserve.ops.suffix import Guess, make_forest
from specserve.types import Ask, AskBatch, Commit, CommitBatch, Request
from tests.contract.drafter import CHECKS
from tests.support.engine import Run, greedy, make_engine, request, run
from tests.support.native import library
from tests.support.stub import StubModel

KINDS = ["python", "native"]


def make(kind: str, options: Options) -> SuffixDrafter:
    found = None if kind == "python" else library()
    forest = make_forest(options.suffix_decoding_max_tree_depth, found)
    return SuffixDrafter(options, forest, make_stores(options, forest))


def small(cache: str = "per-tenant", num_requests: int = 3, memory: int = 2**20, depth: int = 6) -> Options:
    return Options(depth, num_requests, 1.0, 0.1, cache, memory)  # type: ignore[arg-type]


class Writer:
    """Sequences that grow as told, and are guessed about."""

    def __init__(self, drafter: SuffixDrafter) -> None:
        self.drafter = drafter
        self.texts: list[list[int]] = []

    def start(self, prompt: Sequence[int], tenant: str = "") -> int:
        name = len(self.texts)
        self.texts.append(list(prompt))
        self._commit(name, Commit(name, 0, len(prompt), 0, self.texts[name], (), len(prompt), tenant))
        return name

    def write(self, name: int, tokens: Sequence[int]) -> None:
        text = self.texts[name]
        text += tokens
        self._commit(name, Commit(name, len(text) - 1 - len(tokens), len(text) - 1, 0, text))

    def guess(self, name: int, k: int = 8) -> Guess:
        return self.drafter.guess(Ask(name, self.texts[name], k, 0.0, 0))

    def end(self, name: int) -> None:
        self.drafter.forget([name])

    def tell(self, prompt: Sequence[int], output: Sequence[int], tenant: str = "") -> None:
        """A request from beginning to end."""
        name = self.start(prompt, tenant)
        self.write(name, output)
        self.end(name)

    def _commit(self, name: int, commit: Commit) -> None:
        self.drafter.observe(CommitBatch([commit]))


# --- the definition ---------------------------------------------------------------------------


def occurrences(texts: Sequence[Sequence[int]], string: Sequence[int]) -> list[tuple[int, int]]:
    """(text, place) in order."""
    size = len(string)
    return [
        (number, start)
        for number, text in enumerate(texts)
        for start in range(len(text) - size + 1)
        if list(text[start : start + size]) == list(string)
    ]


def best(
    texts: Sequence[Sequence[int]], context: Sequence[int], options: Options, k: int
) -> tuple[list[int], float]:
    """Of all endings of the context, the continuation of the largest score, by counting."""
    depth = options.suffix_decoding_max_tree_depth
    found: tuple[list[int], float] = [], 0.0
    for match in range(1, min(len(context), depth)):
        string, guesses, chance, score = list(context[len(context) - match :]), [], 1.0, 0.0
        if not occurrences(texts, string):
            break
        while len(guesses) < min(k, match) and len(string) < depth:
            after: dict[int, list[tuple[int, int]]] = {}
            for number, start in occurrences(texts, string):
                if start + len(string) < len(texts[number]):
                    after.setdefault(texts[number][start + len(string)], []).append((number, start))
            if not after:
                break
            token = max(after, key=lambda t: (len(after[t]), after[t][-1]))
            chance *= len(after[token]) / len(occurrences(texts, string))
            if chance < options.suffix_decoding_min_token_prob:
                break
            guesses.append(token)
            score += chance
            string.append(token)
        if score >= found[1] - 1e-6:
            found = guesses, score
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache", ["off", "per-tenant", "shared"])
def test_guesses_are_the_better_of_own_text_and_remembered_outputs(kind: str, cache: str) -> None:
    """Over texts that grow side by side and end; the oldest outputs are dropped, also while they grow."""
    random = Random(3)
    options = small(cache)
    writer = Writer(make(kind, options))
    alive: list[int] = []
    written: list[tuple[str, int]] = []  # (tenant, sequence) in order of the first token of output
    prompts, tenants, num_stored = {}, {}, 0
    for _ in range(400):
        if len(alive) < 3 or random.random() < 0.1:
            tenant = random.choice("ab")
            name = writer.start([random.randrange(3) for _ in range(random.randint(1, 9))], tenant)
            alive.append(name)
            prompts[name] = len(writer.texts[name])
            tenants[name] = tenant if cache == "per-tenant" else ""
        name = random.choice(alive)
        if random.random() < 0.1:
            alive.remove(name)
            writer.end(name)
            continue
        writer.write(name, [random.randrange(3) for _ in range(random.randint(1, 3))])
        key = (tenants[name], name)
        written += [key] if key not in written else []
        remembered = [n for t, n in written if t == tenants[name]][-3:] if cache != "off" else []
        outputs = [writer.texts[n][prompts[n] :] for n in remembered]
        text = writer.texts[name]
        own, other = best([text], text, options, 8), best(outputs, text, options, 8)
        right = other if other[1] > own[1] + 1e-6 else own
        guess = writer.guess(name)
        assert guess.score == pytest.approx(right[1], abs=1e-5)
        if abs(own[1] - other[1]) > 1e-5 or own[0] == other[0]:
            assert guess.tokens == right[0]
        num_stored += other[1] > own[1] + 1e-6
    assert (num_stored > 20) == (cache != "off")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("cache", ["off", "per-tenant", "shared"])
def test_the_contract_holds(cache: str, check: object) -> None:
    check(lambda _: make("native", small(cache)))  # type: ignore[operator]


# --- what is remembered -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_is_remembered_and_its_prompt_is_not(kind: str) -> None:
    writer = Writer(make(kind, small()))
    writer.tell([1, 2, 3], [4, 5, 6, 7])
    name = writer.start([9, 4, 5])
    writer.write(name, [6])
    assert writer.guess(name).tokens == [7]
    writer.write(name, [1, 2])
    assert writer.guess(name).tokens == []


def test_outputs_that_nobody_asked_about_are_remembered_when_they_end() -> None:
    writer = Writer(make("native", small()))
    first, second = writer.start([1]), writer.start([8])
    writer.write(first, [4, 5, 6, 7])
    writer.write(second, [4, 5])
    assert writer.guess(second).tokens == []
    writer.end(first)
    assert writer.guess(second).tokens == [6, 7]


def test_a_request_that_runs_drafts_for_others_as_it_is_written() -> None:
    writer = Writer(make("native", small()))
    first, second = writer.start([1]), writer.start([8])
    writer.write(first, [4, 5, 6, 7])
    writer.guess(first)
    writer.write(second, [4, 5])
    assert writer.guess(second).tokens == [6, 7]


def test_the_oldest_outputs_are_dropped_first() -> None:
    writer = Writer(make("native", small(num_requests=2)))
    for first in (10, 20, 30):
        writer.tell([1], [first, first + 1, first + 2])
    for first, expected in ((30, [32]), (20, [])):  # its own output is the second one held
        name = writer.start([1])
        writer.write(name, [first, first + 1])
        assert writer.guess(name, 1).tokens == expected


@pytest.mark.parametrize("options", [small("off"), small(num_requests=0), small(memory=0)])
def test_with_nothing_remembered_a_text_has_only_itself(options: Options) -> None:
    writer = Writer(make("native", options))
    writer.tell([1], [4, 5, 6, 7])
    name = writer.start([1])
    writer.write(name, [4, 5])
    assert writer.guess(name).tokens == []
    writer.write(name, [3, 4, 5])
    assert writer.guess(name).tokens == [3, 4]


def test_at_most_as_many_guesses_as_asked_and_as_the_factor_allows() -> None:
    text = [*range(20), *range(12)]
    for factor, k, expected in ((1.0, 64, 12), (1.0, 4, 4), (0.5, 64, 6), (0.0, 64, 0)):
        writer = Writer(make("native", Options(24, 10, factor, 0.1)))
        name = writer.start(text)
        writer.write(name, [12])
        assert len(writer.guess(name, k).tokens) == expected, (factor, k)


def test_forgetting_leaves_nothing_of_the_request_but_its_output() -> None:
    drafter = make("native", small("off"))
    writer = Writer(drafter)
    for _ in range(3):
        name = writer.start([1, 2, 3] * 50)
        writer.write(name, [4])
        writer.guess(name)
        assert drafter._forest.num_bytes > 0
        writer.end(name)
        assert (drafter._texts, drafter._forest.num_bytes) == ({}, 0)
    writer.end(name)


def test_a_proposal_says_how_long_its_match_was() -> None:
    writer = Writer(make("native", small()))
    first, second = writer.start([1, 2, 3, 4, 5, 6, 1, 2]), writer.start([7])
    writer.write(first, [3])
    writer.write(second, [8])
    asks = [Ask(name, writer.texts[name], 2, 0.0, 0) for name in (first, second)]
    draft = writer.drafter.propose(AskBatch(asks))
    assert (draft.tokens, (draft.matches or [])[0]) == ([[4, 5], []], 3)


def test_build_takes_the_native_tree_where_there_is_one() -> None:
    drafter = build(Options(), None)
    assert drafter.propose(AskBatch([])).tokens == []


# --- other tenants ----------------------------------------------------------------------------


class Watched(SuffixDrafter):
    """Remembers each guess: by sequence and length of its text."""

    def __init__(self, options: Options) -> None:
        forest = make_forest(options.suffix_decoding_max_tree_depth, library())
        super().__init__(options, forest, make_stores(options, forest))
        self.guesses: dict[tuple[int, int], Guess] = {}

    def guess(self, ask: Ask) -> Guess:
        guess = self.guesses[ask.seq_id, len(ask.tokens)] = super().guess(ask)
        return guess


def requests_of(tenant: str, seed: int, num_requests: int = 6) -> list[Request]:
    random = Random(seed)
    prompts = [[random.randrange(4) for _ in range(4)] for _ in range(num_requests)]
    return [
        request(f"{tenant}{i}", prompt, greedy(24, ignore_eos=True), tenant=tenant)
        for i, prompt in enumerate(prompts)
    ]


def beside(options: Options, other: list[Request]) -> tuple[Run, Watched]:
    """Requests of tenant b, and between them `other`, one step each."""
    drafter = Watched(options)
    engine = make_engine(StubModel(vocab_size=8), drafter, k=6, eos=None, num_pages=400, max_model_len=64)
    own = requests_of("b", 1)
    mixed = [one for pair in zip(other, own, strict=True) for one in pair]
    return run(engine, mixed, arrivals={one.request_id: 8 * i for i, one in enumerate(mixed)}), drafter


def news_of_b(found: Run, drafter: Watched) -> tuple[object, object]:
    """Guesses with their scores and costs, and what came of them. Sequences of b have odd numbers."""
    guesses = {key: guess for key, guess in drafter.guesses.items() if key[0] % 2}
    metrics = {
        name: (result.token_ids, result.last.spec_decode_metrics)
        for (name, _), result in found.results.items()
        if name.startswith("b")
    }
    assert len(guesses) > 30
    assert len(metrics) == 6
    return guesses, metrics


@pytest.mark.parametrize("num_requests", [2, 100])
@pytest.mark.parametrize("memory", [2**20, 12000])
def test_what_one_tenant_writes_is_not_seen_by_another(num_requests: int, memory: int) -> None:
    """Guesses, their costs and what becomes of them are the same whatever the other tenant's texts say."""
    options = small(num_requests=num_requests, memory=memory)
    expected = news_of_b(*beside(options, requests_of("a", 2)))
    for seed in (1, 3, 4):  # 1: the very prompts of b
        assert news_of_b(*beside(options, requests_of("a", seed))) == expected


def test_an_equal_tenant_does_profit_and_so_does_everyone_who_shares() -> None:
    """The negative control: the test above can fail."""
    alone = news_of_b(*beside(small(), requests_of("a", 1)))
    twin = [
        Request("a" + one.request_id[1:], one.prompt_token_ids, one.params, 0.0, 0, "b")
        for one in requests_of("b", 1)
    ]
    assert news_of_b(*beside(small(), twin)) != alone
    assert news_of_b(*beside(small("shared"), requests_of("a", 1))) != alone
    assert news_of_b(*beside(small("off"), requests_of("a", 1))) != alone


def test_repeated_requests_are_guessed_better_and_better() -> None:
    engine = make_engine(StubModel(), make("native", Options()), k=8, eos=None, max_model_len=64)
    rates = []
    for turn in range(10):
        found = run(engine, [request(f"r{turn}", [1, 2, 3], greedy(40, ignore_eos=True))])
        rates.append(found.num_accepted / max(1, found.num_drafted))
    assert rates[0] < 0.8 < rates[-1]
