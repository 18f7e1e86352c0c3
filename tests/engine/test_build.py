"""From a configuration to an engine, with a model of a few thousand weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from specserve.errors import ConfigError
from tests.support.tiny import deploy_tiny, write_tiny

LOSSY = {"method": "ngram", "num_speculative_tokens": 4, "rejection_sample_method": "fly"}


def test_a_lossy_rule_warns_once_and_only_when_the_engine_stands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_tiny(tmp_path)
    with pytest.raises(ConfigError):
        deploy_tiny(folder, {"speculative_config": LOSSY, "kv_cache_memory_bytes": 64})
    assert "lossy" not in caplog.text
    assert deploy_tiny(folder, {"speculative_config": LOSSY}).lossy_rule == "fly"
    assert caplog.text.count("FLy verification is a lossy speculative decoding method") == 1
