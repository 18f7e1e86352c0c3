"""Configs that list their layers: what is listed is what is built, and nothing unknown passes as known."""

from __future__ import annotations

from typing import Any

import pytest

from specserve.errors import ModelError
from specserve.models.specs import read_spec

SIZES: dict[str, Any] = {
    "vocab_size": 16,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-6,
    "sliding_window": 5,
    "use_sliding_window": True,
}
FAMILIES = ("Qwen2ForCausalLM", "Qwen3ForCausalLM", "Gemma3ForCausalLM")
FULL, SLIDING = "full_attention", "sliding_attention"


def windows(architecture: str, **changes: Any) -> list[int | None]:
    spec = read_spec({**SIZES, "architectures": [architecture], **changes}, "here")
    return [layer.window for layer in spec.layers]


@pytest.mark.parametrize("architecture", FAMILIES)
def test_listed_layers_win_over_the_rule(architecture: str) -> None:
    kinds = [SLIDING, FULL, SLIDING]
    found = windows(architecture, layer_types=kinds, max_window_layers=0, sliding_window_pattern=1)
    assert found == [5, None, 5]


@pytest.mark.parametrize(
    ("architecture", "changes", "expected"),
    [
        ("Qwen2ForCausalLM", {"max_window_layers": 2}, [None, None, 5]),
        ("Qwen2ForCausalLM", {"max_window_layers": 0, "use_sliding_window": False}, [None] * 3),
        ("Qwen3ForCausalLM", {"max_window_layers": 0}, [5, 5, 5]),
        ("Gemma3ForCausalLM", {}, [5, 5, 5]),
        ("Gemma3ForCausalLM", {"sliding_window_pattern": 2}, [5, None, 5]),
        ("MistralForCausalLM", {}, [5, 5, 5]),
        ("MistralForCausalLM", {"sliding_window": None}, [None] * 3),
        ("LlamaForCausalLM", {}, [None] * 3),
    ],
)
def test_each_family_has_its_rule(
    architecture: str, changes: dict[str, Any], expected: list[int | None]
) -> None:
    assert windows(architecture, **changes) == expected


@pytest.mark.parametrize("architecture", FAMILIES)
def test_an_unknown_kind_of_layer_is_never_taken_for_another(architecture: str) -> None:
    with pytest.raises(
        ModelError, match=r"^here: layer type 'chunked_attention' is out of scope; there are "
    ):
        windows(architecture, layer_types=[FULL, "chunked_attention", FULL])


@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_list_of_another_length_is_named(architecture: str) -> None:
    with pytest.raises(ModelError, match=r"^here: layer_types lists 1 layers, num_hidden_layers is 3"):
        windows(architecture, layer_types=[FULL])


@pytest.mark.parametrize("architecture", [*FAMILIES, "LlamaForCausalLM"])
def test_a_rope_that_is_no_object_is_an_error_in_one_line(architecture: str) -> None:
    with pytest.raises(ModelError, match=r"^here: a value in the config of .* has the wrong type"):
        windows(architecture, rope_parameters=[1])
