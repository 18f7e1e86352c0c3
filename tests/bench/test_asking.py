"""A model's chat template goes around a question once, and never around code or noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers.processors

from specserve.bench import asking
from specserve.bench.asking import Asker, find_tokenizer, given_sampling, prompt_ids
from specserve.bench.dataset import Question
from specserve.config.terminal import SamplingFlags
from specserve.errors import ModelError
from specserve.text.parts import Parts
from specserve.text.tokenizer import Tokenizer
from tests.support.fake_engine import EOS, TEMPLATE, byte_tokenizer
from tests.support.tiny import write_tiny

ASKED = Question("hi", "qa", 9)
CODE = Question("def f():", "humaneval", 9, is_chat=False)
NOISE = Question("abc", "random", 9, (1, 2, 3), is_chat=False)
RENDERED = "user: hi\n> "


def body(backend: str, question: Question, **options: Any) -> dict[str, Any]:
    return Asker(backend, "m", **options).body(question)


def beginning_tokenizer() -> Tokenizer:
    """One that begins every text with a special token."""
    backend = tokenizers.Tokenizer.from_str(byte_tokenizer()._backend.to_str())
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        "</s> $A", special_tokens=[("</s>", EOS)]
    )
    return Tokenizer(Parts(backend, {"eos_token": "</s>"}, TEMPLATE), "bytes")


def test_a_completion_has_the_template_around_it_once() -> None:
    assert body("openai", ASKED, tokenizer=byte_tokenizer())["prompt"] == RENDERED
    assert body("openai", ASKED)["prompt"] == "hi"
    assert body("openai", CODE, tokenizer=byte_tokenizer())["prompt"] == "def f():"
    assert body("openai", NOISE, tokenizer=byte_tokenizer())["prompt"] == [1, 2, 3]


def test_a_chat_is_left_to_the_server() -> None:
    for question in (ASKED, CODE, NOISE):
        [message] = body("openai-chat", question, tokenizer=byte_tokenizer())["messages"]
        assert message == {"role": "user", "content": [{"type": "text", "text": question.text}]}


def test_what_the_template_has_written_is_not_written_again() -> None:
    assert "add_special_tokens" not in body("openai", ASKED, tokenizer=byte_tokenizer())
    assert body("openai", ASKED, tokenizer=beginning_tokenizer())["add_special_tokens"] is False
    assert "add_special_tokens" not in body("openai", CODE, tokenizer=beginning_tokenizer())
    assert prompt_ids(ASKED, beginning_tokenizer()) == list(RENDERED.encode())
    assert prompt_ids(CODE, beginning_tokenizer()) == [EOS, *CODE.text.encode()]
    assert prompt_ids(NOISE, beginning_tokenizer()) == [1, 2, 3]


def test_templates_may_be_given_variables() -> None:
    given = body("openai-chat", ASKED, template_kwargs={"enable_thinking": False})
    assert given["chat_template_kwargs"] == {"enable_thinking": False}
    parts = Parts(byte_tokenizer()._backend, {}, "{{ x }}{{ messages[0].content }}")
    tokenizer = Tokenizer(parts, "bytes")
    assert body("openai", ASKED, tokenizer=tokenizer, template_kwargs={"x": "A"})["prompt"] == "Ahi"


def test_logprobs_are_asked_in_each_apis_way() -> None:
    chat = body("openai-chat", ASKED, logprobs=3)
    assert (chat["logprobs"], chat["top_logprobs"]) == (True, 3)
    assert body("openai", ASKED, logprobs=3)["logprobs"] == 3
    assert body("openai", ASKED)["logprobs"] is None


def test_only_what_was_given_is_sent() -> None:
    assert given_sampling(SamplingFlags()) == {}
    flags = SamplingFlags(temperature=0.0, stop=("x",), max_tokens=9)
    assert given_sampling(flags) == {"temperature": 0.0, "stop": ["x"]}


def test_a_tokenizer_is_found_where_the_model_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = str(write_tiny(tmp_path / "tiny"))
    for arguments in ((folder, None), (folder, "owner/name"), (None, folder)):
        found = find_tokenizer(*arguments)
        assert found is not None
        assert found.vocab_size
    assert find_tokenizer(None, None) is None
    assert find_tokenizer(None, "owner/name") is None  # nothing is downloaded
    monkeypatch.setattr(asking, "is_installed", lambda _: False)
    assert find_tokenizer(None, "smollm2-135m") is None
    assert find_tokenizer(None, str(tmp_path)) is None
    assert "cannot be used" in caplog.text
    with pytest.raises(ModelError, match="no such file"):
        find_tokenizer(str(tmp_path / "none"), folder)
