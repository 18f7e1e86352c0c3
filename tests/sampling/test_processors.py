"""Logits processors: how they are found, which rows and texts they see, what becomes of a broken one."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from torch import Tensor

from specserve.errors import ConfigError, InvalidRequest
from specserve.sampling import processors
from specserve.sampling.processors import LogitsProcessor, apply, load_processors, of_request
from specserve.types import SamplingParams

HERE = "tests.support.processors:"


def params(**extra: Any) -> SamplingParams:
    return SamplingParams(extra_args=extra)


def test_a_name_is_a_function_in_a_module() -> None:
    (loaded,) = load_processors([HERE + "no_repeats"])
    assert loaded.name == HERE + "no_repeats"
    assert of_request([loaded], params()) == []
    assert len(of_request([loaded], params(no_repeats=2))) == 1


def test_or_it_is_an_installed_one_s(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("tidy", HERE + "no_repeats", processors.GROUP)
    monkeypatch.setattr(processors, "entry_points", lambda *, group: [entry] * (group == processors.GROUP))
    assert [one.name for one in load_processors(["tidy"])] == ["tidy"]
    with pytest.raises(ConfigError, match="'untidy', which is not installed; installed: tidy"):
        load_processors(["untidy"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none such", "'none such', which is not installed; installed: none. .*module:function"),
        ("no.such.module:x", "cannot be imported: ModuleNotFoundError"),
        (HERE + "nothing", "cannot be imported: AttributeError"),
        (HERE, "cannot be imported"),
        (HERE + "NOT_CALLABLE", "is a int; it must be a function"),
    ],
)
def test_what_cannot_be_loaded_is_refused_at_start(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load_processors([name])
    assert caught.value.param == "logits_processors"


def test_it_may_refuse_a_request() -> None:
    with pytest.raises(
        InvalidRequest, match=r"no_repeats' refuses extra_args=.*must be an integer"
    ) as caught:
        of_request(load_processors([HERE + "no_repeats"]), params(no_repeats="x"))
    assert caught.value.param == "extra_args"


def recorded(draft: list[int], num: int = 1) -> tuple[list[tuple[int, list[int], list[int], float]], Tensor]:
    """(which processor, prompt, output, the row's first logit) of each call, and the rows after it."""
    calls: list[tuple[int, list[int], list[int], float]] = []

    def make(which: int) -> LogitsProcessor:
        def process(prompt: list[int], output: list[int], logits: Tensor) -> Tensor:
            calls.append((which, prompt, output, float(logits[0])))
            return logits + 1

        return LogitsProcessor(str(which), lambda _: process)

    rows = torch.arange(1.0 + len(draft))[:, None].repeat(1, 8) * 10
    own = of_request([make(which) for which in range(num)], SamplingParams())
    apply(own, rows, [1, 2], [3], draft)
    return calls, rows


def test_each_row_sees_the_guesses_before_it() -> None:
    calls, rows = recorded([4, 5])
    assert calls == [(0, [1, 2], [3], 0.0), (0, [1, 2], [3, 4], 10.0), (0, [1, 2], [3, 4, 5], 20.0)]
    assert rows[:, 3].tolist() == [1.0, 11.0, 21.0]


def test_they_apply_one_after_another() -> None:
    calls, rows = recorded([], num=3)
    assert [(which, first) for which, *_, first in calls] == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert rows.tolist() == [[3.0] * 8]


@pytest.mark.parametrize("strange", [-1, 8, 2**40])
def test_nobody_is_shown_an_id_outside_the_vocabulary(strange: int) -> None:
    calls, rows = recorded([4, strange, 5])
    assert [output for _, _, output, _ in calls] == [[3], [3, 4]]
    assert rows[:, 0].tolist() == [1.0, 11.0, 20.0, 30.0]


def test_what_it_is_given_is_its_own_to_change() -> None:
    def greedy_hands(prompt: list[int], output: list[int], logits: Tensor) -> Tensor:
        prompt.clear()
        output.append(99)
        return logits

    prompt, output = [1], [2]
    own = of_request([LogitsProcessor("x", lambda _: greedy_hands)] * 2, SamplingParams())
    apply(own, torch.zeros(2, 8), prompt, output, [3])
    assert (prompt, output) == ([1], [2])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("shape", r"breaks' must return a tensor like its row, \(8,\); got \(3,\)"),
        ("type", r"got NoneType"),
        ("error", "breaks' failed: ZeroDivisionError"),
    ],
)
def test_a_broken_one_is_named(how: str, words: str) -> None:
    own = of_request(load_processors([HERE + "breaks"]), params(breaks=how))
    failure = apply(own, torch.zeros(1, 8), [1], [], [])
    assert failure is not None
    assert re.search(words, str(failure.error))


def test_rows_before_the_one_that_broke_are_done_and_those_behind_it_are_left() -> None:
    """And itself is some distribution, whatever it had become."""
    loaded = load_processors([HERE + "no_repeats", HERE + "breaks"])
    own = of_request(loaded, params(no_repeats=1, breaks="error", after=2))
    rows = torch.ones(4, 8)
    failure = apply(own, rows, [1], [2], [3, 4, 5])
    assert failure is not None
    assert failure.row == 1
    banned = torch.ones(8).index_fill(0, torch.tensor([2]), -torch.inf)
    assert rows.tolist() == [banned.tolist(), [0.0] * 8, [1.0] * 8, [1.0] * 8]
