"""The data that travels between packages. No behaviour beyond validation and derived values.

Letters used throughout: n sequences, k drafts, R logits rows, V target vocabulary.
Order of reading: what a user asks (`SamplingParams`, `Request`), what a step is made of (`Rows`,
`Draft`, `SamplingRows`, `Verdict`), what became true (`Commit`), what comes out (`Output`, `StepStats`).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specserve.counts import DraftStats as DraftStats
from specserve.counts import SourceCounts as SourceCounts
from specserve.counts import SpecDecodeMetrics as SpecDecodeMetrics
from specserve.sampling_params import SamplingParams as SamplingParams
from specserve.sampling_params import Speculation as Speculation

if TYPE_CHECKING:
    import torch
    from torch import Tensor


# --- what a user asks -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt with its parameters, tokenised and ready to be admitted.

    `params.max_tokens` may still be None (as many as the context holds). `tenant` separates shared
    pages: API key and cache salt together. `arrival` is on the clock of `time.monotonic`, seconds.
    `predicted_token_ids` is what the output may be like, by whoever asks for it: a source of guesses.
    Without a `request_id` nothing is kept of it.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    arrival: float
    priority: int = 0
    tenant: str = ""
    predicted_token_ids: list[int] = field(default_factory=list)


# --- the cache --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KVShape:
    """Shape of one layer's keys and values per token; layers of one page table may differ."""

    num_kv_heads: int
    head_size: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.num_kv_heads * self.head_size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's keys and values: each [num_slots, num_kv_heads, head_size].

    Slot of a position: `block_table[position // page_size] * page_size + position % page_size`.
    Slots past a sequence's computed rows hold garbage, possibly NaN.
    """

    keys: Tensor
    values: Tensor


# --- a step -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """One ragged batch: all sequences of a step, prompts and verifications together.

    Sequence i owns rows `starts[i]:starts[i + 1]`; its last row sees `contexts[i]` keys (itself
    included), an earlier row correspondingly fewer, unless `key_limits` says how many: a block drafter's
    rows see each other. Tensors are contiguous.
    """

    ids: Tensor  # [num_rows] int64
    positions: Tensor  # [num_rows] int64
    slots: Tensor  # [num_rows] int64, where the row's own keys and values go
    starts: list[int]  # [n + 1]
    contexts: list[int]  # [n]
    block_tables: Sequence[Sequence[int]]  # [n] page ids, in order of position
    page_size: int
    key_limits: Tensor | None = None  # [num_rows] int64: row r sees keys at positions < key_limits[r]


@dataclass(frozen=True, slots=True)
class Batch:
    """`Rows` as the host knows them, field by field: plain numbers, whose addresses a native call takes."""

    ids: array[int]  # "q", as the next two
    positions: array[int]
    slots: array[int]
    starts: list[int]
    contexts: list[int]
    block_tables: Sequence[Sequence[int]]
    page_size: int
    key_limits: array[int] | None = None  # "i"


@dataclass(frozen=True, slots=True)
class DraftProbs:
    """q of one sequence: guess j was drawn from `probs[j]`, whose column c is the target id `ids[c]`.

    `ids` (distinct) None: column c is id c. Vd may be smaller than V or larger; an id without a column has
    probability 0, and so has, under the target, an id outside its vocabulary.
    """

    probs: Tensor  # [k, Vd] float32, each row adding up to 1
    ids: Tensor | None = None  # [Vd] int64

    def cut(self, length: int) -> DraftProbs:
        """That of the first `length` guesses."""
        return DraftProbs(self.probs[:length], self.ids)


@dataclass(frozen=True, slots=True)
class Draft:
    """Guesses for n sequences, target ids; ids outside the target's vocabulary are legal and never accepted.

    `q[i]` is what the guesses of sequence i were drawn from; None (or no `q` at all) says that they are a
    function of the true tokens, q one-hot. `confidence` [n, k] is the expected acceptance of each guess.
    A drafter that looks its guesses up says in `matches` how many tokens of the ending stood before them
    there too. `sources` names who made them, where there are several.
    """

    tokens: list[list[int]]
    q: list[DraftProbs | None] | None = None
    confidence: Tensor | None = None
    matches: list[int] | None = None
    sources: list[str | None] | None = None

    @property
    def lengths(self) -> list[int]:
        return [len(tokens) for tokens in self.tokens]


@dataclass(frozen=True, slots=True)
class SamplingRows:
    """What the verifier must know of each of the n sequences that sample in this step."""

    temperatures: list[float]  # 0.0 means greedy


@dataclass(frozen=True, slots=True)
class RowRng:
    """Key of every draw: sequence i draws the token with index `indices[i] + j` at its row j.

    A draw is a pure function of (seed, index, purpose); see `specserve.ops.philox`.
    """

    seeds: list[int]  # unsigned 64 bit
    indices: list[int]  # index of the first token drawn in this step, counted from the prompt's start


@dataclass(frozen=True, slots=True)
class Verdict:
    """For each of n sequences: how many drafts are kept, and the token that follows them."""

    accepted: list[int]
    next_tokens: list[int]


# --- what became true -------------------------------------------------------------------------


@dataclass(slots=True)
class Transfer:
    """vLLM's `kv_transfer_params` of one sequence, for a drafter that keeps rows of it in a file.

    `name` is unlike any other sequence's of this engine; "" if nothing shall be kept. `asked` came with the
    request, and what the drafter has `told` by the time it forgets the sequence goes with its last output.
    `is_whole` is known by then: the text came to its own end.
    """

    name: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """Positions `[start, end)` of sequence `seq_id` are now true.

    `tokens` is a live view of all true tokens; the token that follows row p is `tokens[p + 1]`, and it
    is known for every committed row. `row` is the step's row of position `start`. `block_table` is a live
    view of the sequence's pages, for drafters with layers. The same after a prompt chunk, a verification,
    or a recomputation. The first `num_prompt` tokens were given, the others generated; what is remembered of
    them beyond this sequence may serve its `tenant` only. `transfer` is live, too.
    """

    seq_id: int
    start: int
    end: int
    row: int
    tokens: Sequence[int]
    block_table: Sequence[int] = ()
    num_prompt: int = 0
    tenant: str = ""
    num_preemptions: int = 0
    transfer: Transfer = field(default_factory=Transfer)


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """The news of one step. `features` [num_rows, sum of the wanted layers' sizes] covers all rows of
    the step; a commit's rows are `features[row : row + end - start]`. None when nobody wants any."""

    commits: list[Commit]
    features: Tensor | None = None


# --- drafters ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Needs:
    """What a drafter wants from the engine, read once when the engine is built."""

    features: tuple[int, ...] = ()  # target layers whose rows `observe` wants
    layers: tuple[KVShape, ...] = ()  # extra layers in the shared page table
    lookahead: int = 0  # slots past `computed` that `propose` writes
    reads: tuple[int, ...] = ()  # target layers whose cache it reads
    successors: int = 0  # how many tokens past p its row p depends on
    draft_slots: int = 0  # extra input rows per request in the drafter's own batch
    prediction: bool = False  # it guesses only where an ask has `predicted`
    guesses: bool = True  # False: it only listens, and is not worth asking


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for at most `num_tokens` (≥ 1) guesses after the last of `tokens`.

    `tokens` and `block_table` (page ids in order of position) are live views. The pages reach
    `Needs.lookahead` slots past the rows that are true. The first `num_prompt` tokens were given, and
    `predicted` is what those after them may be like. `source` names the only one whose guesses are wanted.
    """

    seq_id: int
    tokens: Sequence[int]
    num_tokens: int
    temperature: float
    seed: int
    block_table: Sequence[int] = ()
    num_prompt: int = 0
    predicted: Sequence[int] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True)
class AskBatch:
    asks: list[Ask]


# --- what comes out ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Logprob:
    """A token's log-probability and its rank (1 = most likely; ties share the worse rank)."""

    logprob: float
    rank: int
    decoded_token: str | None = None


Logprobs = dict[int, Logprob]  # the chosen token first, then the top ones in order


@dataclass(frozen=True, slots=True)
class FinishedStats:
    """A finished sequence's times (seconds, clock of `time.monotonic`) and counts."""

    finish_reason: str
    arrival: float
    first_scheduled: float
    first_token: float
    last_token: float
    num_prompt_tokens: int
    num_generation_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    max_tokens: int | None
    n: int


@dataclass(frozen=True, slots=True)
class Output:
    """News about one sequence of a request, for whoever waits for it.

    `token_ids` may hold several tokens. `text` is what became printable: never half a character, never
    text that may still turn into a stop string. `logprobs` has one entry per token of `token_ids`.
    `finish_reason`: None, "stop", "length", "abort" or "error". `stop_reason`: what stopped it, or
    of an error what in the request led to it, if anything did.
    """

    request_id: str
    index: int  # which of the n choices
    token_ids: list[int]
    text: str
    logprobs: list[Logprobs] | None = None
    prompt_logprobs: list[Logprobs | None] | None = None  # with the first output only
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    num_cached_tokens: int = 0
    spec_decode_metrics: SpecDecodeMetrics | None = None  # with the last output only
    stats: FinishedStats | None = None  # with the last output only
    kv_transfer_params: Mapping[str, str] | None = None  # with the last output, if a drafter left a file


@dataclass(slots=True)
class StepStats:
    """What one step did; `metrics` adds it up. Times are seconds of wall clock."""

    num_running: int = 0
    num_waiting: int = 0
    num_rows: int = 0
    num_prompt_tokens: int = 0  # prompt tokens whose request got its first token in this step
    num_prompt_tokens_cached: int = 0  # of those, taken from shared pages
    num_generation_tokens: int = 0
    num_emitting: int = 0  # sequences that emitted, the prompt's own step excluded
    num_emitted: int = 0  # tokens they emitted
    kv_cache_usage: float = 0.0
    prefix_queries: int = 0  # tokens
    prefix_hits: int = 0  # tokens
    num_preemptions: int = 0
    num_trimmed_draft_tokens: int = 0  # drafted, then cut by budget or context: never verified
    drafts: list[DraftStats] = field(default_factory=list)
    time_to_first_token: list[float] = field(default_factory=list)
    inter_token_latency: list[float] = field(default_factory=list)
    finished: list[FinishedStats] = field(default_factory=list)
    forward_seconds: float = 0.0
    verify_seconds: float = 0.0
    draft_seconds: float = 0.0
    step_seconds: float = 0.0
    native_seconds: float = 0.0  # of them, inside the network's native call; 0 where PyTorch computes


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """What `Engine.step` returns."""

    outputs: list[Output]
    stats: StepStats
