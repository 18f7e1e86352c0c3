"""specserve: an LLM server for speculative decoding. The public names, imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specserve.llm import LLM
    from specserve.sampling_params import SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    """`specserve --help` and `import specserve` shall not wait for PyTorch."""
    if name == "LLM":
        from specserve.llm import LLM

        return LLM
    if name == "SamplingParams":
        from specserve.sampling_params import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'specserve' has no attribute {name!r}")
