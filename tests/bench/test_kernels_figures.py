"""Figures from made-up samples: every one can be computed by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specserve.bench.kernels_counts import StepShape
from specserve.bench.kernels_figures import document, weight_classes
from specserve.bench.kernels_steps import Case, Measured, Sample
from specserve.ops.program import Op
from specserve.ops.record import Record
from tests.bench.test_kernels_ops import A, B, C, matrix

ONE, PROMPT = Case(1, 4), Case(10, is_prompt=True)


def ops() -> list[Op]:
    """An int4 matrix [8, 8] of 100 bytes, a gather, and a float32 head [8, 8] of 400 bytes."""
    part, weight = matrix("int4")
    head_part, head = matrix("float32")
    part.num_bytes, head_part.num_bytes = 100, 400
    return [
        Op(Record("linear", (A,), B, weight=weight), part),
        Op(Record("gather", (B,), C), None),
        Op(Record("linear", (C,), A, weight=head), head_part),
    ]


def sample(ms: float, shapes: list[StepShape], op_ms: list[float] | None = None) -> Sample:
    """Of a step a tenth is for the host after the logits, and a tenth before the network."""
    seconds = [1e-3 * value for value in op_ms or []]
    return Sample(ms * 1e-3, 0.9 * ms * 1e-3, 0.8 * ms * 1e-3, seconds, shapes)


def measured() -> Measured:
    one, prompt = [StepShape(4, 5, 1)], [StepShape(0, 6, 0), StepShape(6, 10, 1)]
    return Measured(
        steps={
            ONE: [sample(ms, one) for ms in (1.0, 2.0, 3.0, 4.0, 100.0)],
            PROMPT: [sample(20.0, prompt)],
        },
        timed={
            ONE: [sample(9.0, one, [1.0, 0.5, 2.0]), sample(9.0, one, [3.0, 0.5, 2.0])],
            PROMPT: [sample(30.0, prompt, [10.0, 0.5, 2.0])],
        },
        read=[1e6, 9e6, 2e6],
        multiply={"float32": [1e6, 1e6], "int8": [2e6, 2e6], "int4": [4e6, 4e6]},
    )


def test_times_are_medians_with_quartiles() -> None:
    figures = document(measured(), ops())
    assert figures["rows"] == {"1": pytest.approx(2.7)}
    step = figures["steps"]["1"]
    assert step["step_ms"] == pytest.approx(3.0)
    assert step["step_ms_spread"] == pytest.approx([2.0, 4.0])
    assert step["native_ms"] == pytest.approx(2.4)
    assert step["host_ms"] == pytest.approx(0.6)
    assert step["ops_ms"] == pytest.approx(4.5)  # of the timed runs, which the others are not mixed with


def test_shares_are_of_the_whole_step_and_of_what_the_machine_gave() -> None:
    figures = document(measured(), ops())
    step = figures["steps"]["1"]
    assert figures["read_gb_per_s"] == pytest.approx(2e-3)
    assert figures["read_gb_per_s_spread"] == pytest.approx([1.5e-3, 5.5e-3])
    assert figures["multiply_gmac_per_s"] == pytest.approx({"float32": 1e-3, "int8": 2e-3, "int4": 4e-3})
    assert (step["num_bytes"], step["num_macs"]) == (500, 128)
    assert step["gb_per_s"] == pytest.approx(500 / 3e-3 / 1e9)
    assert step["gmac_per_s"] == pytest.approx(128 / 3e-3 / 1e9)
    assert step["roofline_share"] == pytest.approx(500 / 2e6 / 3e-3)
    assert step["multiply_share"] == pytest.approx((64 / 4e6 + 64 / 1e6) / 3e-3)


def test_the_smallest_step_speaks_for_the_run() -> None:
    figures = document(measured(), ops())
    for name in ("step_ms", "host_ms", "roofline_share"):
        assert figures[name] == figures["steps"]["1"][name]


def test_a_prompt_adds_its_steps_up() -> None:
    prompt = document(measured(), ops())["prompt"]
    assert prompt["num_tokens"] == 10
    assert prompt["num_bytes"] == 2 * 100 + 400  # the head runs once
    assert prompt["num_macs"] == 10 * 64 + 64
    assert prompt["tokens_per_s"] == pytest.approx(500.0)


def test_ops_have_their_own_times_and_rates() -> None:
    entries = {entry["op"]: entry for entry in document(measured(), ops())["ops"]}
    assert list(entries) == ["linear", "gather", "head"]
    linear = entries["linear"]
    assert {
        key: linear[key] for key in ("num_ops", "weight_class", "activation_bits", "outputs", "inputs")
    } == {
        "num_ops": 1,
        "weight_class": "int4",
        "activation_bits": 8,
        "outputs": 8,
        "inputs": 8,
    }
    one = linear["rows"]["1"]
    assert one["ms"] == pytest.approx(2.0)
    assert one["ms_spread"] == pytest.approx([1.5, 2.5])
    assert one["gb_per_s"] == pytest.approx(100 / 2e-3 / 1e9)
    assert one["multiply_share"] == pytest.approx(64 / 4e6 / 2e-3)
    assert linear["prompt"]["num_bytes"] == 200
    assert entries["gather"]["rows"]["1"]["num_bytes"] == 0
    assert entries["gather"]["rows"]["1"]["ms"] == pytest.approx(0.5)


def test_without_native_kernels_only_times_are_told() -> None:
    found = measured()
    eager = Measured(
        found.steps, {case: [] for case in found.steps}, [], {"float32": [], "int8": [], "int4": []}
    )
    figures = document(eager, [])
    step: dict[str, Any] = figures["steps"]["1"]
    assert step["step_ms"] == pytest.approx(3.0)
    assert step["eager_ms"] == pytest.approx(2.4)
    assert step["host_ms"] == pytest.approx(0.6)
    for name in ("num_bytes", "num_macs", "gb_per_s", "gmac_per_s", "roofline_share", "multiply_share"):
        assert step[name] is None
    assert figures["read_gb_per_s"] is figures["multiply_gmac_per_s"] is None
    assert figures["ops"] == []


def test_no_prompt_is_none() -> None:
    found = measured()
    del found.steps[PROMPT], found.timed[PROMPT]
    figures = document(found, ops())
    assert figures["prompt"] is None
    assert all("prompt" not in entry for entry in figures["ops"])


def test_all_figures_are_json() -> None:
    assert json.loads(json.dumps(document(measured(), ops())))["rows"].keys() == {"1"}


def test_the_class_with_most_bytes_comes_first() -> None:
    assert weight_classes(ops()) == {
        "weight_class": "float32+int4",
        "weight_bytes": {"float32": 400, "int4": 100},
        "activation_bits": {"float32": [32], "int4": [8]},
    }
