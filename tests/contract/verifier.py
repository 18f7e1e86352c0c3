"""What any verifier must fulfil. A plug-in's own tests call these with its function:

    for check in CHECKS:
        check(my_verify)

`CHECKS` are for every lossless rule; `SAMPLED_CHECKS` for one that also takes the distribution q its drafts
were drawn from; `SHAPE_CHECKS`, which are part of `CHECKS`, hold for lossy rules too. Each raises
AssertionError with what went wrong. The target is `tests/support/law.py`'s toy: five tokens, three of them
written, every text's probability known exactly.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from specserve.ops import Ops
from specserve.ops.philox import TARGET
from specserve.types import Draft, DraftProbs, RowRng, SamplingRows, Verdict
from specserve.verify import Verify
from tests.support.law import (
    Guess,
    Toy,
    check_law,
    deterministic_guesses,
    joint_counts,
    rows_of,
    sampled_guesses,
    texts,
    toy,
)
from tests.support.ops import fast_ops
from tests.support.witness import check

HORIZON = 3
OPS = fast_ops()

Call = tuple[Tensor, Draft, SamplingRows, RowRng]


def check_exact_law(verify: Verify, num_trials: int = 4_000, lengths: tuple[int, ...] = (1, 2, 3)) -> None:
    """The joint law of three tokens is the target's, whatever deterministic drafts propose."""
    target = toy()
    for guess in deterministic_guesses(target).values():
        for k in lengths:
            _check_joint(verify, target, guess, k, num_trials)


def check_exact_law_of_sampled_drafts(
    verify: Verify, num_trials: int = 3_000, lengths: tuple[int, ...] = (1, 3)
) -> None:
    """The same for drafts drawn from q, over some of the target's ids or over foreign ones too."""
    target = toy()
    for guess in sampled_guesses(target).values():
        for k in lengths:
            _check_joint(verify, target, guess, k, num_trials)


def _check_joint(verify: Verify, target: Toy, guess: Guess, k: int, num_trials: int) -> None:
    found = texts(OPS, verify, target, guess, k=k, horizon=HORIZON, seeds=range(num_trials))
    check_law(joint_counts(found, target.vocab_size), target.joint(HORIZON))


def check_same_text(verify: Verify, num_trials: int = 500) -> None:
    """With deterministic drafts a seed's text is that of plain sampling; at temperature 0 the best one."""
    target = toy(seed=2)
    plain = deterministic_guesses(target)["best"]
    for temperature in (1.0, 0.0):
        options = {"horizon": HORIZON, "seeds": range(num_trials), "temperature": temperature}
        expected = texts(OPS, _plain_sampling, target, plain, k=0, **options)
        for name, guess in deterministic_guesses(target).items():
            for k in (1, 2, 5):
                found = texts(OPS, verify, target, guess, k=k, **options)
                check(found == expected, f"{name} drafts change the text at temperature {temperature}")


def _plain_sampling(ops: Ops, logits: Tensor, draft: Draft, sampling: SamplingRows, rng: RowRng) -> Verdict:
    check(not any(draft.tokens), "plain sampling has no drafts")
    tokens = ops.draw(logits, sampling.temperatures, rng.seeds, rng.indices, TARGET)
    return Verdict([0] * len(draft.tokens), tokens.tolist())


def check_empty_draft(verify: Verify) -> None:
    """An empty draft is plain sampling, also beside others that have one."""
    for call in calls():
        logits, draft, sampling, rng = call
        _, next_tokens = _run(verify, call)
        first = 0
        for i, tokens in enumerate(draft.tokens):
            if not tokens:
                own = SamplingRows([sampling.temperatures[i]]), RowRng([rng.seeds[i]], [rng.indices[i]])
                plain = _plain_sampling(OPS, logits[first : first + 1], Draft([[]]), *own)
                check(next_tokens[i] == plain.next_tokens[0], "an empty draft is not plain sampling")
            first += 1 + len(tokens)


def check_bounds(verify: Verify) -> None:
    """Never more accepted than proposed, nothing from outside the vocabulary, nothing behind such an id,
    even when the logits are nonsense."""
    for logits, draft, sampling, rng in calls():
        for rows in (logits, torch.full_like(logits, torch.nan), torch.full_like(logits, -torch.inf)):
            accepted, next_tokens = _run(verify, (rows, draft, sampling, rng))
            check(len(accepted) == len(next_tokens) == len(draft.tokens), "not one answer per sequence")
            for tokens, kept, following in zip(draft.tokens, accepted, next_tokens, strict=True):
                check(0 <= kept <= len(tokens), f"{kept} of {len(tokens)} guesses accepted")
                emitted = [*tokens[:kept], following]
                check(all(0 <= token < rows.shape[1] for token in emitted), "an id outside the vocabulary")


def check_purity(verify: Verify) -> None:
    """Inputs stay as they are, and the same inputs give the same answer."""
    for call in calls():
        logits, draft, sampling, rng = call
        before = logits.clone(), [list(tokens) for tokens in draft.tokens], list(sampling.temperatures)
        keys = list(rng.seeds), list(rng.indices)
        probs = [q.probs for q in draft.q or [] if q is not None]
        q = [p.clone() for p in probs]
        first, second = _run(verify, call), _run(verify, call)
        same_bits = torch.equal(logits.view(torch.int32), before[0].view(torch.int32))
        check(same_bits and all(map(torch.equal, q, probs)), "a tensor was changed")
        check((draft.tokens, sampling.temperatures) == before[1:], "a list was changed")
        check((rng.seeds, rng.indices) == keys, "a key was changed")
        check(first == second, "the same inputs gave another answer")


def check_independence(verify: Verify) -> None:
    """A sequence's answer is the same alone and in a batch."""
    for call in calls():
        logits, draft, sampling, rng = call
        together = _run(verify, call)
        first = 0
        for i, tokens in enumerate(draft.tokens):
            end = first + 1 + len(tokens)
            own = Draft([tokens], None if draft.q is None else [draft.q[i]])
            keys = SamplingRows([sampling.temperatures[i]]), RowRng([rng.seeds[i]], [rng.indices[i]])
            alone = _run(verify, (logits[first:end].clone(), own, *keys))
            check(alone == ([together[0][i]], [together[1][i]]), "the answer depends on the neighbours")
            first = end


def calls() -> list[Call]:
    """Ragged batches of greedy and random sequences, with ids outside the vocabulary among the guesses, first
    all deterministic, then some of them as if drawn from a q."""
    return [*_deterministic_calls(), *(_with_some_q(call) for call in _deterministic_calls())]


def _with_some_q(call: Call) -> Call:
    """Every other sequence has a q; reduced, full and wide ones, now and then nothing for a guess."""
    logits, draft, sampling, rng = call
    generator = torch.Generator().manual_seed(len(draft.tokens))
    q: list[DraftProbs | None] = []
    for i, tokens in enumerate(draft.tokens):
        ids = (None, torch.tensor([4, 0, 9, 2, 1]), torch.tensor([3, 1]))[i // 2 % 3]
        width = 7 if ids is None else len(ids)
        probs = torch.randn(len(tokens), width, generator=generator).softmax(1)
        q.append(None if i % 2 else DraftProbs(probs, ids))
    return logits, Draft(draft.tokens, q), sampling, rng


def _deterministic_calls() -> list[Call]:
    target = toy(seed=3)
    random = np.random.default_rng(0)
    found: list[Call] = []
    for n in (1, 2, 7, 40):
        lengths = random.integers(0, 6, n)
        tokens = [[int(t) for t in random.choice([0, 1, 2, 3, 4, 5, -1, 2**40], k)] for k in lengths]
        draft = Draft([[t % 5 for t in own] if i % 2 else own for i, own in enumerate(tokens)])
        prefixes = [tuple(int(t) for t in random.integers(0, 5, 2)) for _ in range(n)]
        temperatures = [float(t) for t in random.choice([0.0, 1.0], n)]
        rng = RowRng(
            [int(s) for s in random.integers(0, 2**62, n)], [int(i) for i in random.integers(1, 99, n)]
        )
        found.append((rows_of(target, prefixes, draft), draft, SamplingRows(temperatures), rng))
    return found


def _run(verify: Verify, call: Call) -> tuple[list[int], list[int]]:
    verdict = verify(OPS, *call)
    return list(verdict.accepted), list(verdict.next_tokens)


SHAPE_CHECKS = (check_bounds, check_purity, check_independence)
CHECKS = (*SHAPE_CHECKS, check_empty_draft, check_same_text, check_exact_law)
SAMPLED_CHECKS = (check_exact_law_of_sampled_drafts,)
