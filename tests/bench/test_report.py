"""Medians, circumstances and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specserve.bench.report import check_file, machine, middle, write_json
from specserve.errors import ConfigError


def test_the_middle_is_the_median_and_the_quartiles_around_it() -> None:
    assert middle([5.0, 1.0, 2.0, 100.0, 3.0]) == (3.0, [2.0, 5.0])
    assert middle([7.0]) == (7.0, [7.0, 7.0])


def test_a_machine_has_a_name() -> None:
    assert machine()["cpus"] > 0
    assert json.dumps(machine())


def test_no_file_is_no_mistake() -> None:
    check_file(None)
    write_json(None, {})


def test_a_file_can_be_read_again(tmp_path: Path) -> None:
    file = str(tmp_path / "a.json")
    check_file(file)
    write_json(file, {"a": [1.5, None]})
    assert json.loads(Path(file).read_text()) == {"a": [1.5, None]}


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        write_json(str(tmp_path), {})
