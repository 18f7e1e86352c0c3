"""SmolLM2-135M on the native kernels, as target of the exactness matrix: its traffic, drafters and cells."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any, Literal

import torch

from specserve.draft import suffix
from specserve.draft.base import Drafter, NoDraft
from specserve.draft.chain import ChainDrafter, Member
from specserve.draft.ngram import NgramDrafter, Options
from specserve.draft.prediction import PredictionDrafter
from specserve.engine.engine import Engine
from specserve.models import find_model
from specserve.models.decoder import Decoder
from specserve.models.runner import NativeRunner
from specserve.ops import Ops, reference_ops
from specserve.ops.native import Pool, WeightClass, make_pool
from specserve.ops.native_sampling import with_native_sampling
from specserve.ops.program import Limits
from specserve.sampling.guess import Method, guess
from specserve.text.tokenizer import Tokenizer
from specserve.types import (
    Ask,
    AskBatch,
    Batch,
    Draft,
    LayerCache,
    Logprobs,
    Needs,
    Request,
    SamplingParams,
)
from specserve.verify import load_verifier
from tests.support import drafters
from tests.support.drafters import Guesser, Known
from tests.support.engine import Run, greedy, make_engine, request, run
from tests.support.native import library, load_packed
from tests.support.witness import Recording

MODEL = "smollm2-135m"
END = 2  # <|im_end|>
PAGE_SIZE = 8
MAX_REQUESTS = 8
CLASSES: list[WeightClass | None] = [None, "int8", "int4", "bfloat16", "float32"]  # None: as the file has it

SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "filtered": {"temperature": 0.7, "top_p": 0.95},
    "random": {"temperature": 1.0},
    "hot": {"temperature": 1.5, "min_p": 0.1},
    "penalties": {
        "temperature": 0.8,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.4,
        "presence_penalty": -0.3,
    },
}

# --- traffic ----------------------------------------------------------------------------------

SHARED = "The cat sat on the mat. The dog sat on the log. "
REST = [  # each goes its own way at once: who knows the texts can tell them apart by their prompts
    "The cat sat on the mat. The dog and the cat and the rat sat on the hat. The dog sat on the cat. The",
    "My",
    "A bird sat on",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\nThe capital of",
    "1, 2, 3, 1, 2, 3, 1, 2,",
    "Once upon a time",
    "def fibonacci(n):",
    "The capital of France is",
]
NUM_SHARING = 3  # the first of REST come after SHARED
LEADERS = [0, 3]  # those that a cell has first of all: the longest, which shares; and one that ends by itself


@dataclass(frozen=True)
class Traffic:
    """`prompts[i]` is answered with at most `lengths[i]` tokens; `shared` begins the first few. Only cells
    that want to guess more at once go beyond `enough` tokens."""

    prompts: list[list[int]]
    lengths: list[int]
    enough: int
    shared: list[int]

    @property
    def max_model_len(self) -> int:
        longest = max(len(p) + n for p, n in zip(self.prompts, self.lengths, strict=True))
        return -(-longest // PAGE_SIZE) * PAGE_SIZE

    def length(self, i: int, k: int) -> int:
        """A first guess of k tokens has one token before it and one behind it."""
        return min(self.lengths[i], max(self.enough, k + 2))

    def request(self, sampling: str, i: int, max_tokens: int, **more: Any) -> Request:
        """Its name says which one it is; `more` is of `SamplingParams`."""
        params = SamplingParams(
            **SAMPLINGS[sampling], seed=i, max_tokens=max_tokens, logprobs=0, detokenize=False, **more
        )
        return request(f"{sampling}/{i}", self.prompts[i], params)


def make_traffic(times: int, lengths: list[int], enough: int) -> Traffic:
    tokenizer = Tokenizer.load(find_model(MODEL).path)
    prompts = [tokenizer.encode(SHARED * times * (i < NUM_SHARING) + text) for i, text in enumerate(REST)]
    return Traffic(prompts, lengths, enough, tokenizer.encode(SHARED * times))


# --- the target -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """The model in one weight class, on threads, with what is asked of it."""

    model: Decoder
    cache_type: torch.dtype
    pool: Pool
    traffic: Traffic

    def engine(self, drafter: Drafter | None, **options: Any) -> Engine:
        """`options` are of `make_engine`. Every slot of the cache is NaN at first."""
        given = {"eos": END, "page_size": PAGE_SIZE, "max_model_len": self.traffic.max_model_len, **options}
        engine = make_engine(self.model, drafter, pool=self.pool, cache_type=self.cache_type, **given)
        assert isinstance(engine.runner, NativeRunner)
        return engine


@lru_cache(maxsize=1)  # float32 alone takes half a gigabyte
def load_model(weight_class: WeightClass | None) -> Decoder:
    return load_packed(MODEL, weight_class)


def make_target(weight_class: WeightClass | None, traffic: Traffic, num_threads: int = 2) -> Target:
    """The cache's type is what `auto` makes of the class."""
    cache_type = torch.float32 if weight_class == "float32" else torch.float16
    return Target(load_model(weight_class), cache_type, make_pool(library(), num_threads), traffic)


# --- the twin ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Of one request: ids, their log-probabilities, and why it ended."""

    ids: list[int]
    logprobs: list[Logprobs]
    reason: str | None

    def cut(self, max_tokens: int) -> Answer:
        """What is asked for less, and for no more behind an end token, gets of this one."""
        num = self.ids.index(END) + 1 if END in self.ids[:max_tokens] else max_tokens
        reason = "stop" if self.ids[num - 1] == END else "length"
        return Answer(self.ids[:num], self.logprobs[:num], reason)


# By the request's name; they go on behind an end token, so that drafters may know that, too.
Expected = dict[str, Answer]


def together(target: Target, cells: Sequence[Cell]) -> Expected:
    """What the cells ask for, in one batch without speculation, shared pages or chunks."""
    traffic = target.traffic
    lengths: dict[tuple[str, int], int] = {}
    for cell in cells:
        for i in cell.chosen:
            asked = traffic.length(i, cell.most)
            lengths[cell.sampling, i] = max(asked, lengths.get((cell.sampling, i), 0))
    requests = [traffic.request(*key, lengths[key], ignore_eos=True) for key in sorted(lengths)]
    engine = target.engine(
        None,
        num_pages=len(requests) * traffic.max_model_len // PAGE_SIZE,
        max_num_seqs=len(requests),
        budget=sum(len(one.prompt_token_ids) for one in requests),
        caching=False,
    )
    return answers(run(engine, requests))


def alone(target: Target) -> Expected:
    """All requests, each in an engine of its own."""
    found: Expected = {}
    for sampling in SAMPLINGS:
        for i in range(MAX_REQUESTS):
            engine = target.engine(None, num_pages=64, budget=512, caching=False)
            one = target.traffic.request(sampling, i, target.traffic.lengths[i], ignore_eos=True)
            found |= answers(run(engine, [one]))
    return found


def answers(found: Run) -> Expected:
    return {
        name: Answer(result.token_ids, result.logprobs or [], result.finish_reason)
        for (name, _), result in found.results.items()
    }


# --- drafters ---------------------------------------------------------------------------------


class SelfDraft(Guesser):
    """The target's own forward pass, on the target's own pages, one guess after the other.

    The rows it writes past the true ones are what a verification writes there again, or garbage. `spread` is
    the standard deviation of noise on its logits.
    """

    def __init__(self, target: Target, method: Method, k: int, spread: float = 0.0) -> None:
        layers = range(len(target.model.layers))
        super().__init__(lambda _: [], Needs(lookahead=k, reads=tuple(layers)))
        self._target = target
        self._method = method
        self._spread = spread
        self._ops: Ops = with_native_sampling(reference_ops(), target.pool)
        self._runner: NativeRunner | None = None

    def join(self, cache: Sequence[LayerCache]) -> None:
        limits = Limits(MAX_REQUESTS, self._target.traffic.max_model_len, PAGE_SIZE)
        self._runner = NativeRunner(self._target.model, cache, (), self._target.pool, limits)

    def propose(self, asks: AskBatch) -> Draft:
        assert self._runner is not None, "join() first"
        texts = [list(ask.tokens) for ask in asks.asks]
        for place in range(max(ask.num_tokens for ask in asks.asks)):
            active = [i for i, ask in enumerate(asks.asks) if place < ask.num_tokens]
            own = [asks.asks[i] for i in active]
            batch = _last_rows([texts[i] for i in active], own)
            logits = self._runner.forward(batch, list(range(len(active)))).logits
            logits += self._noise([texts[i] for i in active])
            tokens, _ = guess(self._ops, self._method, logits, own, [place] * len(active))
            for i, token in zip(active, tokens, strict=True):
                texts[i].append(token)
        return Draft([text[len(ask.tokens) :] for text, ask in zip(texts, asks.asks, strict=True)])

    def _noise(self, texts: list[list[int]]) -> torch.Tensor:
        if not self._spread:
            return torch.zeros(())
        rows = []
        for text in texts:
            generator = torch.Generator().manual_seed(hash(tuple(text)) % 2**31)
            rows.append(torch.randn(self._target.model.vocab_size, generator=generator))
        return torch.stack(rows) * self._spread


def _last_rows(texts: list[list[int]], asks: list[Ask]) -> Batch:
    positions = [len(text) - 1 for text in texts]
    slots = [
        ask.block_table[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE
        for ask, position in zip(asks, positions, strict=True)
    ]
    return Batch(
        ids=array("q", [text[-1] for text in texts]),
        positions=array("q", positions),
        slots=array("q", slots),
        starts=list(range(len(texts) + 1)),
        contexts=[position + 1 for position in positions],
        block_tables=[list(ask.block_table) for ask in asks],
        page_size=PAGE_SIZE,
    )


# (target, what the drafter may know of the texts, how one with probabilities chooses, k) -> a drafter
Make = Callable[[Target, Known, Method, int], Drafter]


def _random(target: Target, known: Known, method: Method, k: int) -> Drafter:
    return SelfDraft(target, method, k, spread=2.0) if method == "coupled" else drafters.half_right(known)


def _chain(_: Target, known: Known, __: Method, k: int) -> Drafter:
    """Lookups, predictions among them: a network here would have to join the engine."""
    members = [
        Member("prediction", PredictionDrafter(), k),
        Member("ngram", NgramDrafter(Options(1, 3)), k),
        Member("suffix", suffix.build(suffix.Options(), None), k),
    ]
    return drafters.Predicting(ChainDrafter(members), known.texts, known.vocab_size)


DRAFTERS: dict[str, Make] = {
    "none": lambda *_: NoDraft(),
    "ngram": lambda *_: NgramDrafter(Options(1, 3)),
    "suffix": lambda *_: suffix.build(suffix.Options(), None),
    "chain": _chain,
    "self": lambda target, _, method, k: SelfDraft(target, method, k),
    "random": _random,
    "always-wrong": lambda _, known, *__: drafters.always_wrong(known.texts, known.vocab_size),
    "always-right": lambda _, known, *__: drafters.always_right(known.texts),
    "out-of-vocabulary": lambda _, known, *__: drafters.out_of_vocabulary(known),
    "end-inside": lambda _, known, *__: drafters.end_token_inside(known, END),
}

# --- cells ------------------------------------------------------------------------------------

OPTIONS: dict[str, list[Any]] = {
    "weight_class": CLASSES,
    "sampling": list(SAMPLINGS),
    "drafter": list(DRAFTERS),
    "rule": ["standard", "block", "coupled", "coupled, drawn"],
    "k": ["table", "request", 1, 3, 8, 16],  # the first two have zeros in them
    "num_requests": [2, 1, 5, 8],
    "budget": [16, 512],
    "caching": ["hit", "off", "miss"],
    "preemption": ["forced", "shortage", "never"],
}
TABLE = [0, 8, 0, 3, 5, 1, 0, 2, 1]  # k by number of running requests
ASKED: list[dict[str, Any] | None] = [
    {"enabled": False},
    {"num_speculative_tokens": 5},
    {"num_speculative_tokens": 0},
    None,
    {"num_speculative_tokens": 1},
]
FORCED = (1, 5)  # before these steps the last in line loses its pages


@dataclass(frozen=True)
class Cell:
    """One combination of `OPTIONS`; `order` decides who is asked, when and for what."""

    weight_class: WeightClass | None
    sampling: str
    drafter: str
    rule: str
    k: Literal["table", "request"] | int
    num_requests: int
    budget: int
    caching: str
    preemption: str
    order: int

    @property
    def chosen(self) -> list[int]:
        """Numbers of its requests, in no order."""
        random = Random(self.order)
        others = [i for i in range(MAX_REQUESTS) if i not in LEADERS]
        found = [*LEADERS, *random.sample(others, len(others))][: self.num_requests]
        random.shuffle(found)
        return found

    @property
    def method(self) -> Method:
        return "coupled" if self.rule == "coupled, drawn" else "greedy"

    @property
    def table(self) -> list[int]:
        if self.k == "table":
            return TABLE
        return [0] + [8 if self.k == "request" else self.k] * MAX_REQUESTS

    @property
    def most(self) -> int:
        """The most guesses that one step may have."""
        return max(self.table)

    @property
    def is_sure(self) -> bool:
        """Whether a guess of the target itself, drawn with its noise, must be its own token."""
        return self.sampling == "greedy" or (self.method == "coupled" and self.sampling == "random")


@dataclass
class Tally:
    """What happened in a cell, for whoever must know that it could have failed."""

    cell: Cell
    drafted: int = 0
    accepted: int = 0
    discarded: int = 0
    trimmed: int = 0
    preemptions: int = 0
    cached_tokens: int = 0  # that a first admission found
    num_chunks: int = 0
    ends: dict[str, int] = field(default_factory=dict)

    @property
    def rejected(self) -> int:
        return self.drafted - self.accepted - self.discarded


def run_cell(
    target: Target, expected: Expected, cell: Cell, change: Callable[[Engine], None] = lambda _: None
) -> Tally:
    """Run it and compare: raises unless every answer is the expected one, bit for bit. `change` may break
    the engine before."""
    texts = [[*target.traffic.prompts[i], *expected[f"{cell.sampling}/{i}"].ids] for i in cell.chosen]
    known = Known(texts, target.model.vocab_size)
    inner = DRAFTERS[cell.drafter](target, known, cell.method, cell.most)
    drafter = Recording(inner, PAGE_SIZE)
    engine = target.engine(
        drafter,
        table=cell.table,
        num_pages=_num_pages(target.traffic, cell),
        budget=cell.budget,
        caching=cell.caching != "off",
        verify=load_verifier(cell.rule.partition(",")[0]),
    )
    change(engine)
    if isinstance(inner, SelfDraft):
        assert isinstance(engine.runner, NativeRunner)
        inner.join(engine.runner.cache)
    if cell.caching == "hit":
        run(engine, [request("primer", [*target.traffic.shared, 5], greedy(1))])
    requests, arrivals = _arriving(target.traffic, cell)
    found = run(engine, requests, arrivals=arrivals, before_step=_forcing(engine, cell))
    compare(found, expected, cell, target.traffic)
    return _tally(found, drafter, cell)


def _num_pages(traffic: Traffic, cell: Cell) -> int:
    longest = traffic.max_model_len // PAGE_SIZE
    return longest + 1 if cell.preemption == "shortage" else longest * MAX_REQUESTS


def _arriving(traffic: Traffic, cell: Cell) -> tuple[list[Request], dict[str, int]]:
    """Its requests, the first one at once and the others soon."""
    requests = []
    for i in cell.chosen:
        one = traffic.request(cell.sampling, i, traffic.length(i, cell.most))
        asked = ASKED[(i + cell.order) % len(ASKED)] if cell.k == "request" else None
        tenant = one.request_id if cell.caching == "miss" else ""
        requests.append(replace(one, params=replace(one.params, speculation=asked), tenant=tenant))
    random = Random(cell.order)
    steps = [0, *sorted(random.randint(0, 5) for _ in requests[1:])]
    return requests, {one.request_id: step for one, step in zip(requests, steps, strict=True)}


def _forcing(engine: Engine, cell: Cell) -> Callable[[int], None] | None:
    if cell.preemption != "forced":
        return None

    def before_step(number: int) -> None:
        if number in FORCED and engine.scheduler.running:
            engine.scheduler._preempt(engine.scheduler.running[-1])

    return before_step


def compare(found: Run, expected: Expected, cell: Cell, traffic: Traffic) -> None:
    """Equal ids, log-probabilities and reasons; floats are equal when their bits are."""
    for name, answer in answers(found).items():
        right = expected[name].cut(traffic.length(int(name.rpartition("/")[2]), cell.most))
        if answer != right:
            pairs = zip(answer.ids, right.ids, strict=False)
            place = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
            raise AssertionError(f"{cell}: {name} differs, ids from {place}: {answer} is not {right}")


def _tally(found: Run, drafter: Recording, cell: Cell) -> Tally:
    reasons = [result.finish_reason or "" for result in found.results.values()]
    return Tally(
        cell,
        drafted=found.num_drafted,
        accepted=found.num_accepted,
        discarded=sum(draft.discarded for draft in found.drafts),
        trimmed=found.total("num_trimmed_draft_tokens"),
        preemptions=sum(stats.num_preemptions for step in found.steps for stats in step.finished),
        cached_tokens=sum(result.last.num_cached_tokens for result in found.results.values()),
        num_chunks=drafter.num_chunks,
        ends={reason: reasons.count(reason) for reason in reasons},
    )


def check_tally(tally: Tally) -> None:
    """What a cell's values imply, whatever its other values."""
    cell = tally.cell
    if cell.drafter == "none":
        assert tally.drafted == 0, cell
    if cell.drafter == "always-wrong":
        assert tally.accepted + tally.discarded == 0, cell
    if cell.drafter == "always-right" or (cell.drafter == "self" and cell.is_sure):
        assert tally.rejected == 0, cell
    if cell.preemption == "never":
        assert tally.preemptions == 0, cell
    if cell.preemption == "forced":
        assert tally.preemptions > 0, cell
    if cell.caching != "hit":
        assert tally.cached_tokens == 0, cell
    elif cell.preemption != "shortage":
        assert tally.cached_tokens > 0, cell
    if cell.budget == 16:
        assert tally.num_chunks > 0, cell


def check_cover(tallies: Sequence[Tally]) -> None:
    """Under every value of every option guesses were kept and guesses were refused, but for the drafters that
    never or always are right; and everything else that was to happen did."""
    for name, values in OPTIONS.items():
        for value in values:
            own = [tally for tally in tallies if getattr(tally.cell, name) == value]
            accepted, rejected = (sum(getattr(t, which) for t in own) for which in ("accepted", "rejected"))
            assert (accepted > 0) == (value not in ("none", "always-wrong")), (name, value)
            assert (rejected > 0) == (value not in ("none", "always-right")), (name, value)
    for which in ("discarded", "num_chunks", "cached_tokens"):
        assert sum(getattr(tally, which) for tally in tallies) > 0, which
    assert sum(tally.preemptions for tally in tallies if tally.cell.preemption == "shortage") >= 5
    assert {reason for tally in tallies for reason in tally.ends} == {"stop", "length"}
