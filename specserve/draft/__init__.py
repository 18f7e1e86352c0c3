"""How tokens are guessed. Drafters are found by name and imported only when one is wanted.

A drafter's module has a frozen dataclass `Options` and `build(options, target) -> Drafter`. Packages of
others offer theirs through the entry-point group "specserve.drafters", as name = "module:build"; a class
nobody installed is named by its path.
"""

from __future__ import annotations

from collections.abc import Mapping

from specserve.draft.config_methods import METHODS
from specserve.draft.load import Plugin as Plugin
from specserve.draft.load import assemble as assemble
from specserve.draft.load import find_plugins as find_plugins
from specserve.draft.load import load_drafter as load_drafter

DRAFTERS: Mapping[str, str | None] = {method.name: method.build for method in METHODS}
