"""No combination of values, however odd, is our fault: 200 or 400, and the neighbours never notice."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.support.deployment import deploy, serving

INTEGERS = [0, 1, -1, 2, 3, 5, 20, 31, 32, -2, 2**31, 2**62, 2**63 - 1, -(2**63), 10**30]
NUMBERS = [0, 0.0, 1e-9, 0.01, 0.5, 1, 2.0, -1, -2, 1e-320, 1e308, -1e308, -0.0, 0.999999]
TEXTS = ["", "a", "abc", "é", "z" * 50, "\U0001f642", "\x00", "</s>", "e", "."]
WRONG = [None, True, "x", [], {}, [1], "1", 1.5]
PROMPTS: list[Any] = ["abc", "a", [0, 1, 2], ["ab", "c"], [[1], [2, 3]], "abcdefghijkl" * 3, [31], "é", ""]
FIELDS = {
    "n max_tokens min_tokens top_k seed logprobs prompt_logprobs stream_interval priority": (
        lambda random: random.choice(INTEGERS)
    ),
    "truncate_prompt_tokens": lambda random: random.choice(INTEGERS),
    "temperature top_p min_p presence_penalty frequency_penalty repetition_penalty": (
        lambda random: random.choice(NUMBERS)
    ),
    "stop bad_words": lambda random: random.choices(TEXTS, k=random.randint(0, 5)),
    "stop_token_ids allowed_token_ids": lambda random: random.choices(INTEGERS, k=random.randint(0, 4)),
    "logit_bias": lambda random: {
        str(random.choice(INTEGERS)): random.choice(NUMBERS) for _ in range(random.randint(0, 3))
    },
    "echo ignore_eos stream include_stop_str_in_output skip_special_tokens return_token_ids timings": (
        lambda random: random.choice([True, False])
    ),
}


def odd_body(random: Random) -> dict[str, Any]:
    makers = {name: maker for names, maker in FIELDS.items() for name in names.split()}
    body = {"prompt": random.choice(PROMPTS), "max_tokens": random.choice([1, 5, 20])}
    for name in random.sample(sorted(makers), random.randint(0, 4)):
        body[name] = random.choice(WRONG) if random.random() < 0.1 else makers[name](random)
    return body


@pytest.mark.parametrize("count", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_no_value_is_a_500(count: int) -> None:
    random, statuses = Random(count), Counter[int]()
    with serving(deploy(max_logprobs=20, max_model_len=250)) as server:
        for _ in range(count):
            body = odd_body(random)
            content, headers = json.dumps(body), {"content-type": "application/json"}
            reply = server.client.post("/v1/completions", content=content, headers=headers)
            assert reply.status_code in (200, 400), (body, reply.text)
            assert reply.status_code == 400 or '{"error":' not in reply.text, (body, reply.text)
            statuses[reply.status_code] += 1
        assert server.client.get("/health").status_code == 200
    assert min(statuses[200], statuses[400]) > count // 10
