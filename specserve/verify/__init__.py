"""How guesses are kept or refused: one pure function per rule, found by name.

A rule knows no model, no cache, no request and no drafter; logits arrive final. At temperature 0 a lossless
rule compares with the best token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import cast

from torch import Tensor

from specserve.errors import ConfigError, NotBuiltYet
from specserve.ops import Ops
from specserve.types import Draft, RowRng, SamplingRows, Verdict

# (ops, logits [R, V] float32, draft, sampling, rng) -> verdict. Sequence i owns 1 + len(draft.tokens[i])
# consecutive rows of logits, in order; row j of them is what the target says after the guesses before it.
Verify = Callable[[Ops, Tensor, Draft, SamplingRows, RowRng], Verdict]

KEY = "rejection_sample_method"


@dataclass(frozen=True, slots=True)
class Rule:
    """`target` is "module:function", imported when first wanted.

    `is_lossless`: what is emitted has exactly the target's law. `takes_sampled_drafts`: it can use the
    distribution a drafter drew from (`Draft.q`).
    """

    target: str
    is_lossless: bool
    takes_sampled_drafts: bool


VERIFIERS: Mapping[str, Rule] = MappingProxyType(
    {"standard": Rule("specserve.verify.standard:verify", is_lossless=True, takes_sampled_drafts=True)}
)
ANNOUNCED = ("block", "coupled", "synthetic", "fly")


def find_rule(name: str) -> Rule:
    """Raises `NotBuiltYet` for an announced rule, `ConfigError` for an unknown one."""
    if name in VERIFIERS:
        return VERIFIERS[name]
    if name in ANNOUNCED:
        raise NotBuiltYet(f"{KEY} {name!r}", KEY)
    known = [*VERIFIERS, *ANNOUNCED]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}."
    raise ConfigError(f"{KEY} {name!r} is unknown; {hint}", KEY)


def load_verifier(name: str) -> Verify:
    """The rule's function. Errors as `find_rule`."""
    module, _, function = find_rule(name).target.partition(":")
    return cast(Verify, getattr(import_module(module), function))
