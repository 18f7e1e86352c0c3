"""How guesses are kept or refused: one pure function per rule, found by name.

A rule knows no model, no cache, no request and no drafter; logits arrive final. At temperature 0 a lossless
rule compares with the best token. `drawn` has what the rules for drawn drafts share; `greedy` is temperature
0 alone, the simplest rule there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from torch import Tensor

from specserve.config.options import nearest
from specserve.errors import ConfigError
from specserve.ops import Ops
from specserve.types import Draft, RowRng, SamplingRows, Verdict

if TYPE_CHECKING:
    from specserve.config.speculative import SpeculativeConfig

# (ops, logits [R, V] float32, draft, sampling, rng) -> verdict. Sequence i owns 1 + len(draft.tokens[i])
# consecutive rows of logits, in order; row j of them is what the target says after the guesses before it.
Verify = Callable[[Ops, Tensor, Draft, SamplingRows, RowRng], Verdict]

KEY = "rejection_sample_method"


@dataclass(frozen=True, slots=True)
class Rule:
    """`module` has the function `verify`, and with parameters a frozen dataclass `Options` of them; it is
    imported when first wanted.

    `is_lossless`: what is emitted has exactly the target's law. `takes_sampled_drafts`: it needs the
    distribution a drafter drew from (`Draft.q`), and then drafts may be drawn with noise of their own.
    """

    module: str
    is_lossless: bool
    takes_sampled_drafts: bool


VERIFIERS: Mapping[str, Rule] = MappingProxyType(
    {
        "standard": Rule("specserve.verify.standard", is_lossless=True, takes_sampled_drafts=True),
        "block": Rule("specserve.verify.block", is_lossless=True, takes_sampled_drafts=True),
        "coupled": Rule("specserve.verify.coupled", is_lossless=True, takes_sampled_drafts=False),
        "synthetic": Rule("specserve.verify.synthetic", is_lossless=False, takes_sampled_drafts=True),
        "fly": Rule("specserve.verify.fly", is_lossless=False, takes_sampled_drafts=True),
    }
)


def find_rule(name: str) -> Rule:
    """Raises `ConfigError` for an unknown rule."""
    if name in VERIFIERS:
        return VERIFIERS[name]
    raise ConfigError(f"{KEY} {name!r} is unknown; {nearest(name, VERIFIERS)}", KEY)


def load_verifier(name: str, config: SpeculativeConfig | None = None) -> Verify:
    """The rule's function, its options taken from `config` by field name and bound. Errors as `find_rule`."""
    module = import_module(find_rule(name).module)
    kind = getattr(module, "Options", None)
    if kind is None:
        return cast(Verify, module.verify)
    return partial(module.verify, kind(**{f.name: getattr(config, f.name) for f in fields(kind)}))
