"""Drafters by name: ours, and those other packages offer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from specserve.draft import DRAFTERS, config_methods, load_drafter
from specserve.draft.base import NoDraft
from specserve.draft.chain import ChainDrafter
from specserve.draft.config import TargetInfo, resolve_speculative
from specserve.draft.config_methods import METHODS
from specserve.draft.ngram import NgramDrafter
from specserve.errors import ConfigError, NotBuiltYet
from specserve.types import Ask, AskBatch

TARGET = TargetInfo(model="org/target", vocab_size=1000, max_model_len=2048, num_layers=8, hidden_size=64)


@dataclass(frozen=True)
class Options:
    num_speculative_tokens: int
    flavour: str = "plain"


@dataclass(frozen=True)
class DrawingOptions:
    draft_sample_method: str


@dataclass
class Outside(NoDraft):
    options: Options
    target: TargetInfo


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that offers the drafter "echo"."""
    module = ModuleType("echo_drafter")
    module.__dict__.update(Options=Options, build=Outside)
    monkeypatch.setitem(sys.modules, "echo_drafter", module)
    entry = EntryPoint("echo", "echo_drafter:build", config_methods.GROUP)
    monkeypatch.setattr(config_methods, "entry_points", lambda group: [entry] if group == entry.group else [])


def load(raw: dict[str, Any] | None) -> Any:
    """The drafter that was configured; the requests' predictions stand before it."""
    drafter = load_drafter(resolve_speculative(raw, TARGET, max_num_seqs=4), TARGET)
    return drafter.members[-1].drafter if isinstance(drafter, ChainDrafter) else drafter


def test_without_speculation_nothing_is_guessed() -> None:
    assert isinstance(load(None), NoDraft)


def test_ngram_gets_its_options() -> None:
    raw = {
        "method": "ngram",
        "num_speculative_tokens": 2,
        "prompt_lookup_min": 1,
        "prompt_lookup_match": "earliest",
    }
    drafter = load(raw)
    assert isinstance(drafter, NgramDrafter)
    ask = AskBatch([Ask(0, [7, 1, 7, 2, 7], 1, 0.0, 0)])
    assert drafter.propose(ask).tokens == [[1]]  # "earliest"; the most recent one would guess 2


def test_listing_names_imports_no_drafter() -> None:
    assert list(DRAFTERS) == [method.name for method in METHODS]
    assert DRAFTERS["ngram"] == "specserve.draft.ngram:build"


def test_an_announced_drafter_cannot_be_loaded() -> None:
    config = resolve_speculative({"method": "ngram", "num_speculative_tokens": 2}, TARGET, max_num_seqs=4)
    assert config is not None
    object.__setattr__(config, "method", next(m.name for m in METHODS if m.build is None))
    with pytest.raises(NotBuiltYet):
        load_drafter(config, TARGET)


@pytest.mark.usefixtures("outside")
def test_a_drafter_from_outside_has_keys_of_its_own() -> None:
    drafter = load({"method": "echo", "num_speculative_tokens": 3, "flavour": "loud"})
    assert drafter == Outside(Options(3, "loud"), TARGET)
    assert load({"method": "echo", "num-speculative-tokens": 3}).options == Options(3)


@pytest.mark.usefixtures("outside")
def test_a_key_nobody_knows_is_refused_with_the_drafters_own_names() -> None:
    with pytest.raises(ConfigError, match=r"key 'flavor', which 'echo' does not know; .* 'flavour'"):
        load({"method": "echo", "num_speculative_tokens": 3, "flavor": "loud"})
    with pytest.raises(ConfigError, match="unknown key 'flavour'"):
        load({"method": "ngram", "num_speculative_tokens": 3, "flavour": "loud"})


@pytest.mark.usefixtures("outside")
def test_an_unknown_method_lists_outside_drafters_too() -> None:
    with pytest.raises(
        ConfigError, match=r"method must be one of echo, ngram, .*the nearest known name is 'echo'"
    ):
        load({"method": "ecko", "num_speculative_tokens": 3})


@pytest.mark.usefixtures("outside")
def test_a_drafter_from_outside_may_draw_its_guesses(caplog: pytest.LogCaptureFixture) -> None:
    """Whether it has probabilities is known when it is loaded: then it has the option, or there is a
    warning."""
    raw = {"method": "echo", "num_speculative_tokens": 3, "draft_sample_method": "probabilistic"}
    load(raw)
    assert "draft_sample_method=probabilistic has no effect: echo has no such option." in caplog.text
    caplog.clear()
    sys.modules["echo_drafter"].__dict__["Options"] = DrawingOptions
    assert load(raw).options == DrawingOptions("probabilistic")
    assert load({**raw, "draft_sample_method": "coupled"}).options == DrawingOptions("coupled")
    assert load({"method": "echo", "num_speculative_tokens": 3}).options == DrawingOptions("greedy")
    assert not caplog.records
