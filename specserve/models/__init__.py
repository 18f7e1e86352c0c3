"""Networks: weights and forward, no loops, no sampling. Only this package knows checkpoint names."""

from specserve.models.find import ALIASES, ModelFiles, find_model, is_installed
from specserve.models.load import load_model

__all__ = ["ALIASES", "ModelFiles", "find_model", "is_installed", "load_model"]
