"""What the pages say can be followed: links lead somewhere, code compiles, the worked drafter works."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from specserve import LLM, SamplingParams
from tests.contract.drafter import CHECKS, Build
from tests.support.tiny import write_tiny

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def blocks(page: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_compile(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


def test_the_tree_names_every_package() -> None:
    [tree] = [block for block in blocks(ROOT / "README.md", "") if "specserve/" in block]
    packages = {file.parent.name for file in (ROOT / "specserve").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"(\w+)/", tree))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_worked_example_of_a_drafter_fulfils_the_contract(check: Callable[[Build], None]) -> None:
    module = ModuleType("repeat")
    [source] = [
        block for block in blocks(ROOT / "CONTRIBUTING.md", "python") if "class RepeatDrafter" in block
    ]
    exec(source, module.__dict__)
    check(lambda _: module.build(module.Options(), None))


# --- the plug-in of docs/write-a-drafter.md ---------------------------------------------------


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The page's Python blocks; the first is a module that can be imported."""
    sources = blocks(ROOT / "docs" / "write-a-drafter.md", "python")
    (tmp_path / "trail.py").write_text(sources[0])
    monkeypatch.syspath_prepend(tmp_path)
    return sources


def test_the_plug_in_is_about_forty_lines(plug_in: list[str]) -> None:
    assert 35 <= sum(bool(line.strip()) for line in plug_in[0].splitlines()) <= 45


@pytest.mark.usefixtures("plug_in")
def test_the_plug_in_guesses_and_changes_no_text(tmp_path: Path) -> None:
    options: dict[str, Any] = {"kv_cache_memory_bytes": "1M", "num_threads": 1}
    folder = str(write_tiny(tmp_path / "model"))
    trail = {"method": "custom_class", "model": "trail.TrailDrafter", "num_speculative_tokens": 4}
    params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    prompts = [[5, 6, 7] * 4, [9, 8, 9, 8]]
    with_it = LLM(folder, speculative_config={**trail, "max_trail": 3}, **options).generate(prompts, params)
    without = LLM(folder, **options).generate(prompts, params)
    for found, expected in zip(with_it, without, strict=True):
        assert found.outputs[0].token_ids == expected.outputs[0].token_ids
    metrics = [found.outputs[0].spec_decode_metrics for found in with_it]
    assert sum(one.num_accepted_draft_tokens for one in metrics if one) > 0
    assert max(length for one in metrics if one for length in one.acceptance_histogram_by_draft_length) == 3


@pytest.mark.model
def test_the_page_s_offline_program_runs(plug_in: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    [program] = [source for source in plug_in if "from specserve import LLM" in source]
    exec(program, {})
    assert float(capsys.readouterr().out.split()[-1]) > 1.5


def test_the_page_s_way_to_test_a_drafter_works(plug_in: list[str]) -> None:
    [program] = [source for source in plug_in if "CHECKS" in source]
    exec(program, {})
