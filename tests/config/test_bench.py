"""Flags of the benchmarks."""

from __future__ import annotations

import pytest

from specserve.config.bench import ROWS, KernelsFlags, OverheadFlags
from specserve.config.options import from_mapping
from specserve.errors import ConfigError


def test_defaults_are_the_protocol() -> None:
    flags = KernelsFlags()
    assert flags.rows == ROWS == (1, 2, 3, 4, 5, 8, 16, 32)
    assert (flags.context_len, flags.input_len, flags.json) == (256, 512, None)
    assert (OverheadFlags().steps, OverheadFlags().rounds) == (64, 3)


def test_values_may_come_as_text() -> None:
    flags = from_mapping(KernelsFlags, {"rows": "1, 4", "context_len": "1K", "iterations": "3"})
    assert (flags.rows, flags.context_len, flags.iterations) == ((1, 4), 1024, 3)


@pytest.mark.parametrize("options", [{"rows": "1;2"}, {"rows": ()}, {"context_len": 0}, {"input_len": -1}])
def test_what_cannot_be_measured_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        KernelsFlags(**options)  # type: ignore[arg-type]
