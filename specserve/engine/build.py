"""From a configuration to a running engine: model, tokenizer, drafter, cache, scheduler."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from specserve.config.engine import EngineConfig
from specserve.config.environment import read_environment
from specserve.config.generation import default_sampling, end_token_ids
from specserve.config.memory import (
    MemoryFacts,
    cache_size_line,
    fitting_tokens,
    num_pages_for,
    read_cpu_memory,
)
from specserve.config.resolve import (
    resolve_dtype,
    resolve_kv_dtype,
    resolve_max_model_len,
    resolve_max_num_seqs,
    resolve_scheduler,
)
from specserve.config.scheduler import SchedulerConfig
from specserve.config.speculative import SpeculativeConfig
from specserve.draft import assemble
from specserve.draft.base import Drafter, bind
from specserve.draft.config_rules import warn_if_lossy
from specserve.draft.site import Site
from specserve.engine.admission import Admission, Vocabulary
from specserve.engine.choose import Choice, choose
from specserve.engine.draft_length import DraftLength, Loaded
from specserve.engine.engine import Engine
from specserve.engine.native import carries_heads, find_pool, panel_maker, pick_ops
from specserve.engine.scheduler import Scheduler
from specserve.errors import ConfigError
from specserve.kv.pages import PageAllocator
from specserve.kv.pool import allocate, bytes_per_token
from specserve.models import ModelFiles, load_model
from specserve.models.base import CausalLM
from specserve.models.runner import make_runner
from specserve.ops import Ops, OpTimer, reference_ops
from specserve.ops.native import Pool
from specserve.ops.program import Limits
from specserve.text.tokenizer import Tokenizer
from specserve.types import KVShape
from specserve.verify import find_rule, load_verifier

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deployment:
    """An engine and what it was built from. `default_sampling` is the model's, by our names."""

    config: EngineConfig
    engine: Engine
    tokenizer: Tokenizer
    files: ModelFiles
    scheduler: SchedulerConfig
    default_sampling: Mapping[str, Any]
    speculative: SpeculativeConfig | None

    @property
    def max_model_len(self) -> int:
        return self.scheduler.max_model_len

    @property
    def lossy_rule(self) -> str | None:
        """The name of the verification rule, if it changes the text."""
        if self.speculative is None:
            return None
        name = self.speculative.rejection_sample_method
        return None if find_rule(name).is_lossless else name


def build(
    config: EngineConfig, *, is_offline: bool, ops: Ops | None = None, timer: OpTimer | None = None
) -> Deployment:
    """Load everything. Raises `ConfigError` or `ModelError` in one line.

    For measurements: `ops` replaces the network's, `timer` adds up the seconds inside all ops.
    """
    device = pick_device(config.device)
    choice = choose(config, is_offline=is_offline)
    config, files, speculative = choice.config, choice.files, choice.speculative
    tokenizer = Tokenizer.load(_tokenizer_path(config, files), trust=config.trust_remote_code)
    pool = find_pool(config, choice.spec, device)
    ops = pick_ops(ops or reference_ops(), pool, timer)
    dtype = resolve_dtype(config) if pool is None else "float32"
    model = load_model(
        files, ops=ops, dtype=dtype, device=device, maker=panel_maker(config, pool), progress=True
    )
    cache_type = getattr(torch, resolve_kv_dtype(config, is_native=pool is not None))
    drafter = assemble(
        choice.plugins, replace(choice.target, site=_site(config, device, cache_type, ops, pool))
    )
    shapes = [*(replace(shape, dtype=cache_type) for shape in model.layers), *drafter.needs.layers]
    scheduler = _size_cache(config, device, shapes, model, drafter, is_offline)
    cache = allocate(shapes, scheduler.num_pages, scheduler.page_size, device)
    limits = Limits(scheduler.max_num_batched_tokens, scheduler.max_model_len, scheduler.page_size)
    bind(drafter, cache[len(model.layers) :], limits)
    engine = Engine(
        make_runner(model, cache, drafter.needs.features, limits, pool),
        drafter,
        load_verifier(speculative.rejection_sample_method if speculative else "standard", speculative),
        ops,
        Scheduler(
            scheduler,
            PageAllocator(scheduler.num_pages, scheduler.page_size, drafter.needs.successors),
            drafter.needs,
        ),
        _admission(choice, model, tokenizer, scheduler),
        DraftLength(list(speculative.draft_lengths) if speculative else [0], scheduler),
        logprobs_mode=config.logprobs_mode,
    )
    sampling = default_sampling(config, files.generation_config)
    warn_if_lossy(speculative)
    return Deployment(config, engine, tokenizer, files, scheduler, sampling, speculative)


def pick_device(name: str) -> torch.device:
    """Raises `ConfigError` for a device that PyTorch does not know or does not have."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # a device may allocate and still not compute
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {name!r} cannot be used ({reason}); say cpu or auto.", "device") from error
    return device


def _tokenizer_path(config: EngineConfig, files: ModelFiles) -> Path:
    return Path(config.tokenizer) if config.tokenizer else files.path


def _site(
    config: EngineConfig, device: torch.device, cache_type: torch.dtype, ops: Ops, pool: Pool | None
) -> Site:
    """Drafters run as their target does, each in its own weight class."""
    return Site(
        device,
        resolve_dtype(config),
        cache_type,
        ops,
        lambda head_size: pool if carries_heads(head_size) else None,
        lambda quantization: panel_maker(replace(config, quantization=quantization), pool),
    )


def _size_cache(
    config: EngineConfig,
    device: torch.device,
    shapes: list[KVShape],
    model: CausalLM,
    drafter: Drafter,
    is_offline: bool,
) -> SchedulerConfig:
    facts = _memory_facts(device)
    per_token = bytes_per_token(shapes)
    max_model_len = resolve_max_model_len(
        config, model.max_position, fitting_tokens(config, facts, per_token)
    )
    num_pages = num_pages_for(
        config,
        facts,
        bytes_per_token=per_token,
        max_model_len=max_model_len,
        max_num_seqs=resolve_max_num_seqs(config, offline=is_offline),
    )
    logger.info(cache_size_line(num_pages, config.block_size, max_model_len, is_cpu=facts.is_cpu))
    return resolve_scheduler(
        config,
        offline=is_offline,
        max_model_len=max_model_len,
        num_pages=num_pages,
        is_cpu=facts.is_cpu,
        draft_slots=drafter.needs.draft_slots,
    )


def _memory_facts(device: torch.device) -> MemoryFacts:
    """Asked after the weights of target and drafter are loaded, so they are no longer free memory."""
    if device.type == "cuda":
        available, total = torch.cuda.mem_get_info(device)
        return MemoryFacts(total, available, is_cpu=False)
    total, available = read_cpu_memory()
    return MemoryFacts(total, available, environment=read_environment().kv_cache_bytes)


def _admission(
    choice: Choice, model: CausalLM, tokenizer: Tokenizer, scheduler: SchedulerConfig
) -> Admission:
    config, speculative = choice.config, choice.speculative
    eos = tokenizer.eos_token_id
    extra = end_token_ids(config, choice.files.generation_config) - {eos}
    return Admission(
        scheduler,
        Vocabulary(model.vocab_size, eos, frozenset(i for i in extra if i is not None)),
        tokenizer,
        engine_seed=secrets.randbits(64) if config.seed is None else config.seed,
        max_logprobs=config.max_logprobs,
        loaded=_loaded(choice, speculative) if speculative else None,
        processors=choice.processors,
        detailed_metrics=config.per_request_spec_decode_metrics == "detailed",
    )


def _loaded(choice: Choice, speculative: SpeculativeConfig) -> Loaded:
    """The drafter by its name, by the one it was configured with if that is another, and by its sources."""
    sources = tuple(plugin.source for plugin in choice.plugins)
    configured = (choice.config.speculative_config or {}).get("method", speculative.method)
    names = dict.fromkeys([speculative.method, configured, *sources])
    return Loaded(tuple(names), speculative.num_speculative_tokens, sources)
