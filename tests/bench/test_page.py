"""The page shows what its files tell, and nothing that they do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from specserve.bench.page import PLOTS, Source, page, run
from specserve.errors import ConfigError

pytest.importorskip("matplotlib")

KERNELS = {
    "rows": {"1": 4.0, "5": 6.0},
    "steps": {"1": {"num_bytes": 90_000_000}, "5": {"num_bytes": 91_000_000}},
    "read_gb_per_s": 30.0,
    "config": {"model": "<m>"},
}
THROUGHPUT = {
    "decode_speed_up": 1.4,
    "categories": {"qa": {"decode_speed_up": 1.2}, "rag": {"decode_speed_up": None}},
    "spec_decode_acceptance_length": 2.0,
    "acceptance_per_position": [0.7, 0.3],
    "config": {},
}


def served(concurrency: int, rate: float, **more: Any) -> dict[str, Any]:
    return {"max_concurrency": concurrency, "output_throughput": rate, "config": {}, **more}


def titles(*figures: dict[str, Any]) -> list[str]:
    text = page([Source(f"f{number}", found) for number, found in enumerate(figures)])
    assert text.count("<svg") == text.count("</svg>")
    return [plot.title for plot in PLOTS if f"<h2>{plot.title}</h2>" in text]


def test_a_plot_for_everything_that_is_told() -> None:
    assert titles(KERNELS) == ["Time of a target step"]
    assert titles(THROUGHPUT) == ["Speed-up by category", "Acceptance by position"]
    assert titles(served(1, 50.0), served(4, 90.0)) == ["Throughput against concurrency"]
    assert titles(KERNELS, THROUGHPUT, THROUGHPUT, served(1, 50.0)) == [plot.title for plot in PLOTS]
    assert titles({"config": {}}) == []


def test_the_page_is_complete_in_itself_and_escaped() -> None:
    text = page([Source("<a>", KERNELS)])
    assert "&lt;a&gt;" in text
    assert "&lt;m&gt;" in text
    assert "<m>" not in text
    drawing = text[text.index("<svg") : text.index("</svg>") + 6]
    ElementTree.fromstring(drawing)
    assert not [word for word in ("src=", "@import", "<script", "<link") if word in text]


def test_files_become_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, output = tmp_path / "with.json", tmp_path / "r.html"
    file.write_text(json.dumps(THROUGHPUT))
    run({"files": [str(file)], "output": str(output)})
    assert capsys.readouterr().out == f"{output}\n"
    assert "<h3>with</h3>" in output.read_text()


def test_what_is_no_file_of_a_benchmark_is_named(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    for text in ("{", "[]", "{}"):
        file.write_text(text)
        with pytest.raises(ConfigError, match=r"f\.json .*name a file that --json wrote"):
            run({"files": [str(file)]})
    with pytest.raises(ConfigError, match="Name the files"):
        run({})
    file.write_text(json.dumps(THROUGHPUT))
    with pytest.raises(ConfigError, match="cannot be written"):
        run({"files": [str(file)], "output": str(tmp_path / "no" / "r.html")})


def test_without_matplotlib_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'specserve\[bench\]'"):
        page([Source("a", KERNELS)])
