"""Which implementation carries a model, and what is said when it is not the native one."""

from __future__ import annotations

import logging

import pytest
import torch

from specserve.config.engine import engine_config
from specserve.engine.build import pick_device
from specserve.engine.native import find_pool, pick_ops
from specserve.errors import ConfigError
from specserve.models.specs import LayerSpec, ModelSpec, RopeSpec
from specserve.ops import OpTimer, reference_ops
from specserve.ops.native import make_pool
from specserve.ops.philox import TARGET
from tests.support.native import library

CPU = torch.device("cpu")


def spec(head_size: int = 64) -> ModelSpec:
    rope = RopeSpec(10_000.0, head_size, {"rope_type": "default"})
    return ModelSpec(
        architecture="LlamaForCausalLM",
        vocab_size=96,
        hidden_size=64,
        intermediate_size=96,
        num_heads=4,
        num_kv_heads=2,
        head_size=head_size,
        max_position=256,
        norm_eps=1e-5,
        layers=(LayerSpec(None, rope),),
        is_tied=True,
    )


@pytest.mark.parametrize(
    ("options", "head_size", "reason"),
    [
        ({"block_size": 20}, 64, "block_size=20 is no multiple of 8"),
        ({"dtype": "float16"}, 64, "they have no float16"),
        ({}, 20, "the head size is 20"),
    ],
)
def test_falling_back_is_said(
    options: dict[str, object], head_size: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_pool(engine_config(options), spec(head_size), CPU) is None
    assert reason in caplog.text


def test_eager_by_choice_needs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_pool(engine_config({"enforce_eager": True}), spec(), CPU) is None
    assert not caplog.records


def test_a_weight_class_of_the_kernels_needs_the_kernels() -> None:
    with pytest.raises(ConfigError, match="quantization='int8' needs the native kernels, but enforce_eager"):
        find_pool(engine_config({"enforce_eager": True, "quantization": "int8"}), spec(), CPU)


def test_sampling_is_native_with_and_without_a_native_network_and_timed_when_asked() -> None:
    reference, pool = reference_ops(), make_pool(library(), 2)
    timer = OpTimer()
    for ops in (
        pick_ops(reference, pool),
        pick_ops(reference, None),
        pick_ops(reference, pool, timer),
    ):
        assert ops.draw(torch.tensor([[0.0, 2.0, 1.0]]), [0.0], [0], [0], TARGET).tolist() == [1]
        for name in ("draw", "accept", "temper", "truncate", "logprobs", "penalize"):
            assert getattr(ops, name) is not getattr(reference, name)
    assert timer.seconds > 0.0
    assert pick_ops(reference, pool).linear is reference.linear


@pytest.mark.parametrize("name", ["meta", "tpu", "cuda:99"])
def test_a_device_that_cannot_compute_is_one_line(name: str) -> None:
    with pytest.raises(ConfigError, match=f"device '{name}' cannot be used"):
        pick_device(name)
