"""What to serve, decided before a weight is loaded: mistakes in a configuration cost no waiting."""

from __future__ import annotations

from dataclasses import dataclass

from specserve.config.engine import EngineConfig
from specserve.config.resolve import resolve_max_num_seqs
from specserve.config.speculative import SpeculativeConfig
from specserve.draft import Plugin, find_plugins
from specserve.draft.config import TargetInfo, resolve_speculative
from specserve.draft.config_speculators import follow_speculators
from specserve.models.find import ModelFiles, find_model
from specserve.models.specs import ModelSpec, read_spec
from specserve.sampling.processors import LogitsProcessor, load_processors


@dataclass(frozen=True, slots=True)
class Choice:
    """`config` names the target, also where the user named a drafter that brings its target. `plugins` make
    the drafter of `speculative`."""

    config: EngineConfig
    files: ModelFiles
    spec: ModelSpec
    target: TargetInfo
    speculative: SpeculativeConfig | None
    plugins: tuple[Plugin, ...]
    processors: tuple[LogitsProcessor, ...]


def choose(config: EngineConfig, *, is_offline: bool) -> Choice:
    """Find the files and decide on speculation. Raises any `UserError`."""
    files = find_model(config.model, revision=config.revision)
    config = follow_speculators(config, files.config)
    if config.model != files.name:
        files = find_model(config.model)
    spec = read_spec(files.config, files.name)
    target = TargetInfo(
        model=files.name,
        vocab_size=spec.vocab_size,
        max_model_len=spec.max_position,
        num_layers=len(spec.layers),
        hidden_size=spec.hidden_size,
        hf_config=files.config,
    )
    speculative = resolve_speculative(
        config.speculative_config,
        target,
        max_num_seqs=resolve_max_num_seqs(config, offline=is_offline),
        async_scheduling=config.async_scheduling,
        read_checkpoint=lambda model, revision: find_model(model, revision=revision).config,
    )
    processors = load_processors(config.logits_processors)
    return Choice(config, files, spec, target, speculative, find_plugins(speculative), processors)
