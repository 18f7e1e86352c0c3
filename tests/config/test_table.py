"""The generated page of options."""

from __future__ import annotations

import re

from specserve.config.engine import EngineConfig
from specserve.config.options import flag, options_of
from specserve.config.server import ServerConfig
from specserve.config.speculative import SpeculativeConfig
from specserve.config.table import markdown


def test_every_option_has_one_row_with_four_cells() -> None:
    rows = [line for line in markdown().splitlines() if line.startswith("| `")]
    names = [re.findall(r"`([^`]+)`", row)[0] for row in rows]
    for config in (EngineConfig, ServerConfig):
        assert {flag(name) for name in options_of(config)} <= set(names)
    assert set(options_of(SpeculativeConfig)) <= set(names)
    options = [row for row in rows if not row.startswith("| `VLLM") and not row.startswith("| `OPENAI")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in options} == {5}


def test_announced_options_are_marked() -> None:
    text = markdown()
    assert "| `--enable-lora` | BOOL | false | *announced:* adapters |" in text
