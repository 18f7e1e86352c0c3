"""What `specserve serve` does: build the engine, put the server around it, serve until a signal."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from socket import socket
from time import monotonic

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from specserve.config.engine import EngineConfig
from specserve.config.environment import Environment, read_environment
from specserve.config.server import ServerConfig
from specserve.engine.build import Deployment, build
from specserve.errors import ConfigError
from specserve.metrics.prometheus import PrometheusMetrics
from specserve.metrics.stats import PeriodicLog
from specserve.server.app import create_app
from specserve.server.bridge import Bridge
from specserve.server.jobs import Jobs
from specserve.server.lifecycle import Lifecycle, bind, check_certificate, loop_factory
from specserve.server.recorder import Recorder
from specserve.server.served import Served


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts of a server, connected and not started."""

    app: FastAPI
    bridge: Bridge
    recorder: Recorder | None


def run(engine_config: EngineConfig, server_config: ServerConfig) -> None:
    """Serve until SIGINT or SIGTERM. Raises `UserError`; exits with 1 when the model cannot be warmed up."""
    environment = read_environment()
    config = replace(server_config, api_key=server_config.api_key or environment.api_keys)
    check_certificate(config)
    with bind(config) as sock:
        assembly = assemble(build(engine_config, is_offline=False), config, environment)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            if not runner.run(_serve(assembly, config, sock)):
                raise SystemExit(1)


async def _serve(assembly: Assembly, config: ServerConfig, sock: socket) -> bool:
    lifecycle = Lifecycle(assembly.app, assembly.bridge, config)
    lifecycle.stop_on_signals()
    logging_task = asyncio.create_task(assembly.recorder.keep_logging()) if assembly.recorder else None
    try:
        return await lifecycle.run(sock)
    finally:
        if logging_task is not None:
            logging_task.cancel()


def assemble(deployment: Deployment, config: ServerConfig, environment: Environment) -> Assembly:
    """The application around an engine. Raises `ConfigError` for a chat template that cannot be read."""
    limits, registry = deployment.scheduler, CollectorRegistry()
    served = _served(deployment, config)
    recorder = None
    if not deployment.config.disable_log_stats:
        recorder = _recorder(deployment, served, registry, environment.log_stats_interval)
    bridge = Bridge(
        deployment.engine,
        recorder.record if recorder else lambda _: None,
        max_requests=limits.max_num_seqs + limits.max_waiting,
        rejected=recorder.rejected if recorder else lambda: None,
    )
    jobs = Jobs(served, deployment.engine.check, limits.max_waiting)
    return Assembly(create_app(served, bridge, jobs, config, registry=registry), bridge, recorder)


def _served(deployment: Deployment, config: ServerConfig) -> Served:
    engine_config = deployment.config
    return Served(
        names=engine_config.served_model_name or (engine_config.model,),
        root=engine_config.model,
        tokenizer=deployment.tokenizer,
        max_model_len=deployment.max_model_len,
        default_sampling=deployment.default_sampling,
        chat_template=None if config.chat_template is None else _read_template(config.chat_template),
        trusts_request_templates=config.trust_request_chat_template,
        response_role=config.response_role,
        lossy_rule=deployment.lossy_rule,
        reports_speculation=engine_config.per_request_spec_decode_metrics != "none",
        stream_interval=engine_config.stream_interval,
        forces_usage=config.enable_force_include_usage,
        shows_cached_tokens=config.enable_prompt_tokens_details,
    )


def _recorder(
    deployment: Deployment, served: Served, registry: CollectorRegistry, interval: float
) -> Recorder:
    limits, speculative = deployment.scheduler, deployment.speculative
    num_spec_tokens = None if speculative is None else speculative.num_speculative_tokens
    cache_info = {
        "block_size": limits.page_size,
        "num_gpu_blocks": limits.num_pages,
        "enable_prefix_caching": limits.enable_prefix_caching,
        "cache_dtype": deployment.config.kv_cache_dtype,
    }
    metrics = PrometheusMetrics(
        served.names[0],
        num_spec_tokens,
        served.max_model_len,
        cache_info=cache_info,
        lossy_rule=deployment.lossy_rule,
        registry=registry,
    )
    device = "CPU" if deployment.engine.runner.device.type == "cpu" else "GPU"
    log = PeriodicLog(now=monotonic(), num_spec_tokens=num_spec_tokens, device=device, interval=interval)
    return Recorder(metrics, log, interval)


def _read_template(text: str) -> str:
    """A template as it is, or from the file it names: templates have braces, paths hardly."""
    if "{" in text:
        return text
    try:
        return Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"chat_template={text!r} is neither a template nor a file that can be read ({error}).",
            "chat_template",
        ) from error
