"""From a request to its sequences: checks against the model's limits, resolved ids, seeds."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import count

from specserve.config.scheduler import SchedulerConfig
from specserve.engine.draft_length import Loaded
from specserve.engine.sequence import Sequence
from specserve.errors import InvalidRequest
from specserve.kv.pages import BlockTable
from specserve.kv.prefix import root_key
from specserve.sampling.process import SequenceSampling
from specserve.sampling.processors import LogitsProcessor, of_request
from specserve.sampling_params import predicted_content, transfer_params
from specserve.text.stream import TextStream
from specserve.text.tokenizer import Tokenizer
from specserve.types import Request, SamplingParams, SpecDecodeMetrics, Speculation, Transfer

SEED_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Ids a request may name, and those that end a text: the end token and the model's further ones."""

    size: int
    eos_token_id: int | None = None
    extra_eos_token_ids: frozenset[int] = frozenset()


def truncate_prompt(prompt: list[int], limit: int | None, max_model_len: int) -> list[int]:
    """The last `limit` tokens; -1 means as many as the context holds beside one output token."""
    if limit is None:
        return prompt
    return prompt[-(max_model_len - 1 if limit == -1 else limit) :]


def predicted_ids(params: SamplingParams, tokenizer: Tokenizer, max_model_len: int) -> list[int]:
    """What a request predicts of its output, no more of it than the context could hold."""
    content = predicted_content(params.prediction)
    if isinstance(content, str):
        text = tokenizer.beginning(content, max_model_len)
        content = tokenizer.encode(text, add_special_tokens=False)
    return content[:max_model_len]


def _name_for_files(request: Request, index: int) -> str:
    """The request's, and which of its choices this is if there are several."""
    name = request.request_id
    return f"{name}.{index}" if name and request.params.n > 1 else name


class Admission:
    """Stateless but for the arrival number, which only unseeded requests' seeds depend on.

    With nothing `loaded` a request has metrics of speculation only if it says something about it.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        vocabulary: Vocabulary,
        tokenizer: Tokenizer | None,
        *,
        engine_seed: int,
        max_logprobs: int = 20,
        loaded: Loaded | None = None,
        processors: tuple[LogitsProcessor, ...] = (),
        detailed_metrics: bool = False,
    ) -> None:
        self._config = config
        self._vocabulary = vocabulary
        self._tokenizer = tokenizer
        self._engine_seed = engine_seed
        self._max_logprobs = max_logprobs
        self._loaded = loaded or Loaded()
        self._processors = processors
        self._detailed_metrics = detailed_metrics
        self._arrivals = count()

    def check(self, request: Request) -> None:
        """Raise `InvalidRequest` when the request can never be served. Pure; any thread."""
        self._check_prompt(request)
        self._check_ids(request.params)
        self._check_allowed(request.params)
        self._check_vocabulary("prediction", request.predicted_token_ids)
        self._check_logprobs(request.params)
        self._loaded.num_for(Speculation.of(request.params.speculation))
        of_request(self._processors, request.params)
        if request.params.bad_words and self._tokenizer is None:
            raise InvalidRequest("bad_words needs a tokenizer; this engine has none.", "bad_words")
        if request.priority and self._config.policy != "priority":
            raise InvalidRequest(
                f"priority={request.priority} needs --scheduling-policy priority; this server runs "
                f"{self._config.policy}.",
                "priority",
            )

    def admit(self, request: Request) -> list[Sequence]:
        """The request's n sequences; the first leads, the others wait for its prompt."""
        self.check(request)
        root = self._root(request)
        bad_words = self._bad_words_ids(request.params)
        leader: Sequence | None = None
        seqs = []
        for index in range(request.params.n):
            seq = self._sequence(request, index, root, bad_words, leader)
            leader = leader or seq
            seqs.append(seq)
        return seqs

    # --- checks -------------------------------------------------------------------------------

    def _check_prompt(self, request: Request) -> None:
        prompt = request.prompt_token_ids
        if not prompt:
            raise InvalidRequest("prompt must hold at least one token.", "prompt")
        if len(prompt) >= self._config.max_model_len:
            raise InvalidRequest(
                f"This model's maximum context length is {self._config.max_model_len} tokens; the prompt "
                f"has {len(prompt)} and at least one more must fit. Shorten it.",
                "prompt",
            )
        self._check_vocabulary("prompt", prompt)

    def _check_ids(self, params: SamplingParams) -> None:
        self._check_vocabulary("stop_token_ids", params.stop_token_ids or [])
        self._check_vocabulary("allowed_token_ids", params.allowed_token_ids or [])
        self._check_vocabulary("logit_bias", list(params.logit_bias or {}))

    def _check_allowed(self, params: SamplingParams) -> None:
        """As far as it is known before the text: whether its first token may be any."""
        if not params.allowed_token_ids or not params.bad_words:
            return
        left = set(params.allowed_token_ids)
        if params.min_tokens:
            left = left - self._stop_ids(params) or left  # as `sampling.process` has it
        if left <= {ids[0] for ids in self._bad_words_ids(params) if len(ids) == 1}:
            raise InvalidRequest(
                "allowed_token_ids leaves no token for the start of the text that bad_words or min_tokens do "
                "not forbid; allow others too.",
                "allowed_token_ids",
            )

    def _check_vocabulary(self, name: str, ids: list[int]) -> None:
        size = self._vocabulary.size
        if ids and (min(ids) < 0 or max(ids) >= size):
            wrong = next(i for i in ids if not 0 <= i < size)
            raise InvalidRequest(f"{name} holds token id {wrong}, outside the vocabulary [0, {size}).", name)

    def _check_logprobs(self, params: SamplingParams) -> None:
        for name, value in (("logprobs", params.logprobs), ("prompt_logprobs", params.prompt_logprobs)):
            if value is None or self._max_logprobs == -1:
                continue
            if value == -1 or value > self._max_logprobs:
                asked = f"{name}=-1 asks for all tokens, which" if value == -1 else f"{name}={value}"
                raise InvalidRequest(
                    f"{asked} is more than --max-logprobs {self._max_logprobs} allows.", name
                )

    # --- building -----------------------------------------------------------------------------

    def _sequence(
        self,
        request: Request,
        index: int,
        root: bytes | None,
        bad_words: list[list[int]],
        leader: Sequence | None,
    ) -> Sequence:
        params, vocabulary = request.params, self._vocabulary
        prompt = request.prompt_token_ids
        room = self._config.max_model_len - len(prompt)
        arrival = next(self._arrivals)
        asked = Speculation.of(params.speculation)
        num_spec_tokens = self._loaded.num_for(asked)
        own_stops = frozenset(params.stop_token_ids or ())
        return Sequence(
            seq_id=arrival,
            request=request,
            index=index,
            tokens=list(prompt),
            num_prompt=len(prompt),
            table=BlockTable(root),
            sampling=SequenceSampling(
                params,
                prompt_token_ids=prompt,
                stop_ids=self._stop_ids(params),
                bad_words_ids=bad_words,
                vocab_size=vocabulary.size,
                processors=of_request(self._processors, params),
            ),
            seed=self._seed(params, index, arrival),
            temperature=params.effective_temperature,
            max_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
            eos_token_id=None if params.ignore_eos else vocabulary.eos_token_id,
            stop_token_ids=own_stops if params.ignore_eos else own_stops | vocabulary.extra_eos_token_ids,
            stream=self._stream(request),
            leader=leader,
            num_spec_tokens=num_spec_tokens,
            wanted_source=self._loaded.source_for(asked),
            spec=self._metrics(params, num_spec_tokens),
            transfer=Transfer(_name_for_files(request, index), transfer_params(params.extra_args)),
        )

    def _stop_ids(self, params: SamplingParams) -> frozenset[int]:
        """All that may end the text, and `min_tokens` forbids."""
        stops = self._vocabulary.extra_eos_token_ids.union(params.stop_token_ids or ())
        eos = self._vocabulary.eos_token_id
        return stops if eos is None else stops | {eos}

    def _root(self, request: Request) -> bytes | None:
        """Who may share pages: the tenant, or only the n choices among themselves, or nobody."""
        if self._config.enable_prefix_caching:
            return root_key("tenant\0" + request.tenant)
        if request.params.n > 1:
            return root_key("request\0" + request.request_id)
        return None

    def _seed(self, params: SamplingParams, index: int, arrival: int) -> int:
        if params.seed is not None:
            return (params.seed + index) & SEED_MASK
        text = f"{self._engine_seed}/{arrival}".encode()
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")

    def _stream(self, request: Request) -> TextStream | None:
        params = request.params
        if self._tokenizer is None or not params.detokenize:
            return None
        return TextStream(
            self._tokenizer,
            request.prompt_token_ids,
            stop=params.stop_strings,
            include_stop=params.include_stop_str_in_output,
            skip_special_tokens=params.skip_special_tokens,
            spaces_between_special_tokens=params.spaces_between_special_tokens,
        )

    def _metrics(self, params: SamplingParams, num_spec_tokens: int) -> SpecDecodeMetrics | None:
        if not self._loaded.methods and params.speculation is None:
            return None
        asked = Speculation.of(params.speculation).method
        method = (asked or self._loaded.methods[0]) if num_spec_tokens else None
        return SpecDecodeMetrics(num_spec_tokens, method, detailed=self._detailed_metrics)

    def _bad_words_ids(self, params: SamplingParams) -> list[list[int]]:
        """Each word as it is tokenised at a text's start, and after a space if that differs in one token
        count: most tokenisers know a word by its leading space."""
        if not params.bad_words or self._tokenizer is None:
            return []
        found: list[list[int]] = []
        for word in params.bad_words:
            text = word.lstrip() or word  # a word may be nothing but spaces
            bare = self._tokenizer.encode(text, add_special_tokens=False)
            spaced = self._tokenizer.encode(" " + text, add_special_tokens=False)
            found.append(bare)
            if bare and len(spaced) == len(bare) and spaced[0] != bare[0]:
                found.append(spaced)
        return [ids for ids in found if ids]
