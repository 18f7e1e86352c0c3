"""What an engine in this process was when it was measured."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from specserve.bench.kernels_figures import weight_classes
from specserve.bench.kernels_steps import program_of
from specserve.bench.report import machine
from specserve.config.resolve import resolve_dtype, resolve_kv_dtype
from specserve.engine.build import Deployment

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def circumstances(deployment: Deployment, *flags: DataclassInstance) -> dict[str, Any]:
    """The benchmark's own flags, what decides the engine's speed and its text, and the machine."""
    config, program = deployment.config, program_of(deployment.engine)
    found = {
        **{name: value for part in flags for name, value in asdict(part).items() if "json" not in name},
        "model": config.model,
        "dtype": config.dtype,
        "quantization": config.quantization,
        "activation_bits": config.activation_bits,
        "kv_cache_dtype": resolve_kv_dtype(config, is_native=program is not None),
        "speculative_config": config.speculative_config,
        "seed": config.seed,
        "enable_prefix_caching": config.enable_prefix_caching,
        "block_size": config.block_size,
        "max_num_batched_tokens": deployment.scheduler.max_num_batched_tokens,
        "runner": "eager" if program is None else "native",
    }
    if program is not None:
        found["num_threads"] = program.pool.threads.size
        found["instruction_set"] = program.pool.instruction_set
    return found | machine()


def classes_of(deployment: Deployment) -> dict[str, Any]:
    """The weight class, and of native kernels its bytes and the bits of the inputs."""
    program = program_of(deployment.engine)
    if program is None or not program.ops:
        return {"weight_class": resolve_dtype(deployment.config)}
    return weight_classes(program.ops)
