"""Drafters of others, by name or by path: what is wrong with one is said in a line that names the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from specserve.config.engine import engine_config
from specserve.draft import config_methods, load_drafter
from specserve.draft.base import Drafter
from specserve.draft.chain import ChainDrafter
from specserve.draft.config import TargetInfo, resolve_speculative
from specserve.engine.check import check
from specserve.errors import ConfigError
from tests.support.tiny import deploy_tiny, write_tiny

TARGET = TargetInfo(model="org/target", vocab_size=1000, max_model_len=2048, num_layers=8, hidden_size=64)
HEAD = """
from dataclasses import dataclass
from specserve.draft.base import NoDraft

@dataclass(frozen=True)
class Options:
    num_speculative_tokens: int
    flavour: str = "plain"
"""
GOOD = f"""{HEAD}
class Drafter(NoDraft):
    def __init__(self, options, target):
        self.options, self.target = options, target
"""
NUMBER = iter(range(100))


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a module and returns its name, a new one each time."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source: str) -> str:
        name = f"outside_drafter_{next(NUMBER)}"
        (tmp_path / f"{name}.py").write_text(source)
        return name

    return write


def raw(model: str, **keys: Any) -> dict[str, Any]:
    return {"method": "custom_class", "model": model, "num_speculative_tokens": 3, **keys}


def configured(drafter: Drafter) -> Any:
    """Without the requests' predictions, which stand before it."""
    assert isinstance(drafter, ChainDrafter)
    [_, member] = drafter.members
    return member.drafter


def load(given: Mapping[str, Any]) -> Any:
    return configured(load_drafter(resolve_speculative(given, TARGET, max_num_seqs=4), TARGET))


def refused(given: Mapping[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(given)
    return caught.value


def test_a_class_is_built_with_its_options_and_the_target(written: Any) -> None:
    drafter = load(raw(f"{written(GOOD)}.Drafter", flavour="loud"))
    assert (drafter.options.num_speculative_tokens, drafter.options.flavour) == (3, "loud")
    assert drafter.target == TARGET


def test_a_path_needs_no_method_and_a_function_is_as_good_as_a_class(written: Any) -> None:
    name = written(f"{GOOD}\ndef build(options, target):\n    return Drafter(options, target)\n")
    assert load({"model": f"{name}.build", "num_speculative_tokens": 3}).options.flavour == "plain"


def test_an_installed_drafter_may_be_the_model(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("echo", f"{written(GOOD)}:Drafter", config_methods.GROUP)
    monkeypatch.setattr(config_methods, "entry_points", lambda group: [entry] if group == entry.group else [])
    config = resolve_speculative(raw("echo", flavour="loud"), TARGET, max_num_seqs=4)
    assert config is not None
    assert config.method == "echo"
    assert configured(load_drafter(config, TARGET)).options.flavour == "loud"


@dataclass(frozen=True)
class Broken:
    source: str
    param: str | None
    words: str
    model: str = "{}.Drafter"
    keys: tuple[tuple[str, Any], ...] = ()


@pytest.mark.parametrize(
    "broken",
    [
        Broken(GOOD, "model", "full module path in model, as package.module.Class", model="Drafter"),
        Broken(GOOD, "model", "cannot be imported: ModuleNotFoundError", model="no_such_module.Drafter"),
        Broken("import no_such_module", "model", "cannot be imported: ModuleNotFoundError"),
        Broken("1 / 0", "model", "cannot be imported: ZeroDivisionError"),
        Broken(GOOD, "model", "has no 'Drafer'; the nearest known name is 'Drafter'", model="{}.Drafer"),
        Broken(f"{HEAD}\nDrafter = 3", "model", "something else than a class or function as 'Drafter'"),
        Broken("class Drafter: ...", "model", "has no dataclass Options; docs/write-a-drafter.md"),
        Broken(GOOD, "flavor", "'flavor', which '{}.Drafter' does not know", keys=(("flavor", "loud"),)),
        Broken(GOOD.replace(' = "plain"', ""), "flavour", "'{}.Drafter' needs the key 'flavour'"),
        Broken(
            GOOD.replace(' = "plain"', ' = "plain"\n    __post_init__ = lambda self: int(self.flavour)'),
            None,
            "refuses its options: invalid literal",
        ),
        Broken(f"{HEAD}\nclass Drafter(NoDraft): ...", "model", "could not be built: TypeError"),
        Broken(f"{GOOD}\n        raise RuntimeError('bad luck')", "model", "RuntimeError('bad luck')"),
        Broken(f"{GOOD}\n    propose = None", "model", "is no drafter: it lacks propose; docs/"),
        Broken(GOOD.replace("(NoDraft)", ""), "model", "lacks observe, propose, synced, forget, needs"),
        Broken(f"{GOOD}\n    needs = ()", "model", "is no drafter: it lacks needs"),
    ],
)
def test_what_is_wrong_with_a_class_is_said(written: Any, broken: Broken) -> None:
    name = written(broken.source)
    error = refused(raw(broken.model.format(name), **dict(broken.keys)))
    assert broken.words.format(name) in str(error)
    assert error.param == broken.param
    assert "\n" not in str(error)


def test_checking_a_configuration_imports_its_drafter(written: Any, tmp_path: Path) -> None:
    """So a mistake is told before any weight is loaded."""
    folder = write_tiny(tmp_path / "model")
    config = engine_config({"model": str(folder), "speculative_config": raw(f"{written('1 / 0')}.Drafter")})
    with pytest.raises(ConfigError, match="cannot be imported"):
        check(config)


def test_an_engine_runs_with_a_class_named_by_its_path(written: Any, tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "model")
    deployment = deploy_tiny(folder, {"speculative_config": raw(f"{written(GOOD)}.Drafter")})
    drafter = configured(deployment.engine.drafter)
    assert type(drafter).__name__ == "Drafter"
    assert drafter.target.model == str(folder)
