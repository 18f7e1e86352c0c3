"""Whether the native kernels carry a model, and how: threads, weight class."""

from __future__ import annotations

import logging

import torch

from specserve.config.engine import EngineConfig
from specserve.config.memory import num_cores
from specserve.config.resolve import resolve_weight_class
from specserve.errors import ConfigError
from specserve.models.specs import ModelSpec
from specserve.models.weights import PanelMaker
from specserve.ops import Ops, OpTimer, timed
from specserve.ops.native import Pool, find_library, make_pool
from specserve.ops.native_sampling import with_native_sampling
from specserve.ops.program import TILE

logger = logging.getLogger(__name__)


def find_pool(config: EngineConfig, spec: ModelSpec, device: torch.device) -> Pool | None:
    """Threads of the native library, or None where PyTorch ops must do.

    Raises `ConfigError` for a weight class that only the native kernels have.
    """
    reason = _obstacle(config, spec, device)
    library = None if reason else find_library()
    if library is None:
        if config.quantization is not None:
            why = reason or "they are not installed"
            message = f"quantization={config.quantization!r} needs the native kernels, but {why}."
            raise ConfigError(message, "quantization")
        if reason is not None and not config.enforce_eager:
            logger.warning("No native kernels, PyTorch ops instead: %s.", reason)
        return None
    num_threads = config.num_threads or num_cores()
    pool = make_pool(library, num_threads)
    logger.info("Native kernels: %s, %d threads.", pool.instruction_set, num_threads)
    torch.set_num_threads(1)  # PyTorch's own pool would spin against ours
    return pool


def is_native(config: EngineConfig, spec: ModelSpec, device: torch.device) -> bool:
    """Whether the native kernels would carry the model here."""
    return _obstacle(config, spec, device) is None and find_library() is not None


def carries_heads(size: int) -> bool:
    return size % 8 == 0 and size <= 256


def pick_ops(ops: Ops, pool: Pool | None, timer: OpTimer | None = None) -> Ops:
    """`ops` with native sampling wherever the library is; and with a timer around each of them.

    Without a pool, on another device for instance, sampling needs no thread but the caller's.
    """
    library = find_library()
    if library is not None:
        ops = with_native_sampling(ops, pool or make_pool(library, 1))
    return ops if timer is None else timed(ops, timer)[0]


def panel_maker(config: EngineConfig, pool: Pool | None) -> PanelMaker | None:
    if pool is None:
        return None
    return PanelMaker(pool.library, resolve_weight_class(config), config.activation_bits)


def _obstacle(config: EngineConfig, spec: ModelSpec, device: torch.device) -> str | None:
    """Why the native kernels cannot carry this model here."""
    if config.enforce_eager:
        return "enforce_eager is set"
    if device.type != "cpu":
        return f"the device is {device}"
    if config.dtype in ("float16", "half"):
        return "they have no float16"
    if config.block_size % TILE:
        return f"block_size={config.block_size} is no multiple of {TILE}"
    if not carries_heads(spec.head_size):
        return f"the head size is {spec.head_size}"
    return None
