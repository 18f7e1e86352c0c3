"""Chat templates render as transformers renders them; what goes wrong is the request's error."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from specserve.errors import InvalidRequest
from specserve.text.chat import render
from tests.support.vocabularies import NAMED, byte_level_backend, byte_level_tokenizer

CHATML = """\
{% for message in messages %}{% if loop.first and message['role'] != 'system' %}{{ '<|im_start|>system
Be helpful.<|im_end|>
' }}{% endif %}{{ '<|im_start|>' + message['role'] + '\\n' }}
{{- message['content'] + '<|im_end|>\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
STRICT = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{% for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate') }}
    {%- endif %}
    {%- set role = 'model' if message['role'] == 'assistant' else message.role %}
{{ '<start>' + role + '\\n' + message['content'] | trim + '<end>\\n' }}
{% endfor %}
{%- if add_generation_prompt %}{{ '<start>model\\n' }}{% endif %}{{ eos_token }}"""
FANCY = """\
{%- set ns = namespace(count=0) -%}
{%- for message in messages -%}
    {%- set ns.count = ns.count + 1 -%}
    {%- if ns.count > 3 -%}{%- break -%}{%- endif -%}
    {{ message | tojson }} {{ {'b': 1, 'a': '<ü>'} | tojson(indent=2) }} {{ message.content is defined }}
    {%- if message.reasoning_content is defined %} [{{ message.reasoning_content }}] {%- endif -%}
    {%- generation -%} {% set x = 1 %}<gen>{{ message.role }}</gen> {%- endgeneration -%} {{ x is defined }}
{%- endfor -%}
{{ tools is none }} {{ documents is none }} {{ enable_thinking | default('unset') }} {{ strftime_now('%Y') }}
{{ unk_token is defined }} {{ dict(a=1)['a'] }}"""
TEMPLATES = {"chatml": CHATML, "strict": STRICT, "fancy": FANCY}

USER = {"role": "user", "content": "  Hello <b> \n"}
CHATS = [
    [USER],
    [USER, {"role": "assistant", "content": "Hi! "}, {"role": "user", "content": "ü 🙂 {{ x }}"}],
    [
        USER,
        {"role": "assistant", "content": "Hi", "reasoning": "so", "tool_calls": None, "extra": {"a": [1]}},
    ],
]


def oracle(messages: list[dict[str, Any]], template: str, prompt: bool = False, **variables: Any) -> str:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level_backend(), **NAMED)
    rendered = tokenizer.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=prompt, **variables
    )
    assert isinstance(rendered, str)
    return rendered


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("messages", CHATS)
@pytest.mark.parametrize("prompt", [True, False])
def test_rendering_equals_transformers(name: str, messages: list[dict[str, Any]], prompt: bool) -> None:
    template = TEMPLATES[name]
    ours = render(byte_level_tokenizer(template), messages, add_generation_prompt=prompt)
    assert ours == oracle(messages, template, prompt)


def test_variables_of_the_request_reach_the_template() -> None:
    ours = render(
        byte_level_tokenizer(FANCY),
        [USER],
        add_generation_prompt=False,
        template_kwargs={"enable_thinking": False, "tools": [{"type": "function"}]},
    )
    assert ours == oracle([USER], FANCY, enable_thinking=False, tools=[{"type": "function"}])


@pytest.mark.parametrize("name", ["chatml", "strict"])
@pytest.mark.parametrize("final", ["Sure, here", "ends with blanks  ", "\n two\n\nlines "])
def test_a_continued_message_stays_open_as_in_transformers(name: str, final: str) -> None:
    messages = [USER, {"role": "assistant", "content": final}]
    ours = render(
        byte_level_tokenizer(TEMPLATES[name]),
        messages,
        add_generation_prompt=False,
        continue_final_message=True,
    )
    assert ours == oracle(messages, TEMPLATES[name], continue_final_message=True)
    assert ours.endswith(final.strip() if name == "strict" else final)
    assert messages[-1]["content"] == final


def test_text_parts_are_joined_by_lines() -> None:
    parts = [{"type": "text", "text": "one"}, "two", {"type": "text", "text": "three"}]
    tokenizer = byte_level_tokenizer("{{ messages[0].content }}")
    assert render(tokenizer, [{"role": "user", "content": parts}]) == "one\ntwo\nthree"
    assert render(tokenizer, [{"role": "user", "content": parts[:1]}]) == "one"
    assert render(tokenizer, [{"role": "user", "content": []}]) == ""


def test_a_template_of_the_request_replaces_the_models() -> None:
    assert render(byte_level_tokenizer("model"), [USER], chat_template="request") == "request"


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "must not be empty"),
        ([{"content": "no role"}], "object with a role"),
        (["text"], "object with a role"),
        ([{"role": "user", "content": 3}], "string or a list of text parts, got int"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "'image_url' are not supported"),
        ([{"role": "user", "content": [7]}], "'int' are not supported"),
        ([{"role": "user", "content": [{"type": "text"}]}], "must have its text as a string"),
        ([{"role": "system", "content": "x"}], "System role not supported"),
        ([{"role": "assistant", "content": "x"}], "Roles must alternate"),
        ([{"role": "user", "content": "x"}, {"role": 3}], "object with a role"),
    ],
)
def test_bad_messages_are_the_requests_error(messages: list[Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as raised:
        render(byte_level_tokenizer(STRICT), messages)
    assert raised.value.param == "messages"


@pytest.mark.parametrize(
    ("model", "request_template", "message"),
    [
        (None, None, "no chat template"),
        ("{% for %}", None, "not valid Jinja"),
        (None, "{{ unclosed", "not valid Jinja"),
        (None, "(" * 10 + "{{" + "(" * 5000, "not valid Jinja"),
    ],
)
def test_bad_templates_are_the_requests_error(
    model: str | None, request_template: str | None, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as raised:
        render(byte_level_tokenizer(model), [USER], chat_template=request_template)
    assert raised.value.param == "chat_template"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ 1 / 0 }}",
        "{{ range(10 ** 9) }}",
        "{{ undefined_name.attribute }}",
    ],
)
def test_the_sandbox_holds(template: str) -> None:
    with pytest.raises(InvalidRequest, match="refused these messages"):
        render(byte_level_tokenizer(template), [USER])


def test_continuing_excludes_a_generation_prompt() -> None:
    with pytest.raises(InvalidRequest, match="exclude each other"):
        render(byte_level_tokenizer(CHATML), [USER], continue_final_message=True)


@pytest.mark.parametrize(
    ("template", "last", "message"),
    [
        (CHATML, {"role": "assistant"}, "last message with content"),
        ("nothing shown", {"role": "assistant", "content": "x"}, "does not show the last message"),
        ("{{ messages[-1].content[1:] }}", {"role": "assistant", "content": "xyz"}, "does not show the last"),
    ],
)
def test_a_message_that_cannot_be_continued_is_said(
    template: str, last: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        render(
            byte_level_tokenizer(template),
            [USER, last],
            add_generation_prompt=False,
            continue_final_message=True,
        )
