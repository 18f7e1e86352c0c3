"""A deployment of the real engine around a stub target, as `specserve.engine.build` would give one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from specserve.config.engine import EngineConfig
from specserve.config.environment import Environment
from specserve.draft.base import Drafter
from specserve.draft.chain import ChainDrafter, Member
from specserve.draft.config import TargetInfo, resolve_speculative
from specserve.draft.config_methods import PREDICTION
from specserve.draft.prediction import PredictionDrafter
from specserve.engine.build import Deployment
from specserve.models import ModelFiles
from specserve.server.run import assemble
from specserve.verify import load_verifier
from tests.support.drafters import self_draft
from tests.support.engine import check_idle, letters, make_engine
from tests.support.server import Running, free_port, running
from tests.support.stub import StubModel

ENVIRONMENT = Environment(log_stats_interval=0.0)


@contextmanager
def serving(deployment: Deployment, **options: Any) -> Iterator[Running]:
    """A server over a deployment, `options` are of `ServerConfig`; it may leave nothing in the engine."""
    config = free_port(**options)
    assembly = assemble(deployment, config, ENVIRONMENT)
    with running(assembly.app, assembly.bridge, config, deployment.engine) as server:
        yield server
    check_idle(deployment.engine)


def deploy(
    *, config: dict[str, Any] | None = None, k: int = 4, drafter: Drafter | None = None, **engine: Any
) -> Deployment:
    """`config` is of `EngineConfig`, `engine` of `make_engine`. Unless another is given, the drafter is the
    target itself, with k guesses, beside the requests' own predictions; k = 0 is no speculation."""
    model = StubModel()
    speculation = {"method": "ngram", "num_speculative_tokens": k}
    given = {"model": "stub", "speculative_config": speculation if k else None, **(config or {})}
    settled = EngineConfig(**given)
    target = TargetInfo(
        vocab_size=model.vocab_size,
        max_model_len=model.max_position,
        num_layers=1,
        hidden_size=model.hidden_size,
        model="stub",
        hf_config={},
    )
    tokenizer = letters()
    members = [Member(PREDICTION, PredictionDrafter(), k), Member("ngram", drafter or self_draft(model), k)]
    speculative = resolve_speculative(settled.speculative_config, target, max_num_seqs=8)
    rule = speculative.rejection_sample_method if speculative else "standard"
    verify = load_verifier(rule, speculative)
    chain = ChainDrafter(members) if k else None
    made = make_engine(model, chain, k=k, tokenizer=tokenizer, verify=verify, **engine)
    files: Any = ModelFiles
    return Deployment(settled, made, tokenizer, files, made.scheduler.config, {}, speculative)
