"""What the pages say can be followed: links lead somewhere, code compiles, the worked drafter works."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.contract.drafter import CHECKS, Build

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
