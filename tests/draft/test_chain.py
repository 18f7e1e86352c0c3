"""Several drafters as one: who is asked, whose guesses are taken, and what becomes of the law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from specserve.draft.base import SYNCED_ALWAYS, Drafter
from specserve.draft.chain import ChainDrafter, Member, Offer, united
from specserve.types import Ask, AskBatch, Commit, CommitBatch, Draft, KVShape, Needs
from specserve.verify import load_verifier
from tests.support.drafters import Guesser, Sampler
from tests.support.engine import greedy, make_engine, plain, request, run
from tests.support.law import check_law, joint_counts
from tests.support.stub import StubModel
from tests.support.toys import first_tokens, run_toy, toy_model

NETWORK = Needs(lookahead=2, reads=(0,))


class Source(Guesser):
    """Answers with the same guesses each time, behind a match of a given length."""

    def __init__(self, guesses: Sequence[int], match: int | None = None, needs: Needs | None = None) -> None:
        super().__init__(lambda ask: list(guesses)[: ask.num_tokens], needs)
        self.match = match
        self.asks: list[Ask] = []
        self.news: list[CommitBatch] = []
        self.forgotten: list[int] = []

    def propose(self, asks: AskBatch) -> Draft:
        self.asks += asks.asks
        draft = super().propose(asks)
        return draft if self.match is None else replace(draft, matches=[self.match] * len(asks.asks))

    def observe(self, commits: CommitBatch) -> None:
        self.news.append(commits)

    def forget(self, seq_ids: list[int]) -> None:
        self.forgotten += seq_ids


def chain(**members: Drafter) -> ChainDrafter:
    return ChainDrafter([Member(name, drafter, 8) for name, drafter in members.items()])


def ask(tokens: Sequence[int], seq_id: int = 0, num_tokens: int = 8, source: str | None = None) -> Ask:
    return Ask(seq_id, tokens, num_tokens, 0.0, 0, source=source)


def propose(drafter: ChainDrafter, *asks: Ask) -> list[tuple[str | None, list[int]]]:
    draft = drafter.propose(AskBatch(list(asks)))
    assert draft.sources is not None
    return list(zip(draft.sources, draft.tokens, strict=True))


def tell(drafter: ChainDrafter, tokens: Sequence[int], seq_id: int = 0) -> None:
    drafter.observe(CommitBatch([Commit(seq_id, 0, len(tokens) - 1, 0, tokens)]))


# --- whose guesses are taken --------------------------------------------------------------------


def test_a_long_match_is_taken_before_a_short_one_wherever_it_stands() -> None:
    drafter = chain(first=Source([1, 2, 3], match=1), second=Source([4, 5, 6], match=20))
    assert propose(drafter, ask([0])) == [("second", [4, 5, 6])]


def test_of_equal_offers_the_first_is_taken_and_an_empty_one_never() -> None:
    drafter = chain(none=Source([]), first=Source([1, 2], match=4), second=Source([3, 4], match=4))
    assert propose(drafter, ask([0])) == [("first", [1, 2])]
    assert propose(chain(none=Source([])), ask([0])) == [(None, [])]


def test_a_source_that_was_wrong_lately_gives_way_and_comes_back() -> None:
    """The second one's offers are judged though they are not taken."""
    first, second = Source([1, 1, 1], match=8), Source([2, 2, 2], match=4)
    drafter, tokens = chain(first=first, second=second), [0]
    taken = []
    for truth in [2] * 8 + [1] * 20:
        [(name, _)] = propose(drafter, ask(tokens))
        taken.append(name)
        tokens = [*tokens, truth]
        tell(drafter, tokens)
    assert taken[0] == "first"
    assert taken[3:8] == ["second"] * 5
    assert taken[-5:] == ["first"] * 5


def test_each_text_has_a_record_of_its_own() -> None:
    drafter = chain(first=Source([1, 1], match=8), second=Source([2, 2], match=4))
    tokens = [0]
    for _ in range(10):
        propose(drafter, ask(tokens, seq_id=0))
        tokens = [*tokens, 2]
        tell(drafter, tokens)
    found = propose(drafter, ask(tokens, seq_id=0), ask(tokens, seq_id=1))
    assert [name for name, _ in found] == ["second", "first"]


def test_one_source_may_be_asked_for_and_guesses_no_more_than_it_may() -> None:
    drafter = ChainDrafter(
        [Member("long", Source([1] * 8, match=20), 8), Member("short", Source([2] * 8, match=1), 3)]
    )
    assert propose(drafter, ask([0], source="short")) == [("short", [2, 2, 2])]
    assert propose(drafter, ask([0], num_tokens=5)) == [("long", [1] * 5)]
    assert propose(drafter, ask([0], source="short", num_tokens=2)) == [("short", [2, 2])]


# --- networks -----------------------------------------------------------------------------------


def test_where_one_member_alone_may_answer_nothing_is_weighed() -> None:
    lookup, reader = Source([1, 2, 3], match=1), Source([4, 5], match=9, needs=Needs(prediction=True))
    drafter = ChainDrafter([Member("reader", reader, 8), Member("lookup", lookup, 2)])
    assert propose(drafter, ask([0]), ask([0], 1)) == [("lookup", [1, 2])] * 2
    assert (reader.asks, drafter._texts) == ([], {})
    predicting = replace(ask([0]), predicted=[4, 5])
    assert propose(drafter, predicting, ask([0], 1)) == [("reader", [4, 5]), ("lookup", [1, 2])]
    assert propose(drafter, replace(predicting, source="lookup")) == [("lookup", [1, 2])]
    assert propose(drafter, ask([0], source="reader"), ask([0], 1)) == [(None, []), ("lookup", [1, 2])]


def test_one_that_only_listens_is_never_asked_and_stands_in_nobody_s_way() -> None:
    listener = Source([], needs=Needs(features=(1,), guesses=False))
    lookup, network = Source([1], match=1), Source([2] * 4, needs=NETWORK)
    alone = chain(listener=listener, lookup=lookup)
    assert propose(alone, ask([0])) == [("lookup", [1])]
    assert alone._texts == {}
    drafter = chain(listener=listener, lookup=lookup, network=network)
    for _ in range(20):
        assert propose(drafter, ask([0])) == [("network", [2] * 4)]
    assert not listener.asks
    assert propose(drafter, ask([0], source="listener")) == [(None, [])]
    assert (drafter.needs.guesses, chain(listener=listener).needs.guesses) == (True, False)


def test_a_network_is_asked_only_where_it_promises_more() -> None:
    lookup, network = Source([1] * 8, match=20), Source([2] * 4, needs=NETWORK)
    assert propose(chain(lookup=lookup, network=network), ask([0])) == [("lookup", [1] * 8)]
    assert not network.asks
    weak = Source([1], match=1)
    assert propose(chain(lookup=weak, network=network), ask([0])) == [("network", [2] * 4)]


def test_a_network_that_answers_nothing_leaves_the_lookup_s_guesses() -> None:
    lookup, network = Source([1], match=1), Source([], needs=NETWORK)
    assert propose(chain(network=network, lookup=lookup), ask([0])) == [("lookup", [1])]
    assert len(network.asks) == 1


def test_of_several_networks_one_is_asked_the_one_with_the_better_record() -> None:
    bad, good = Source([1] * 4, needs=NETWORK), Source([2] * 4, needs=NETWORK)
    drafter, tokens = chain(bad=bad, good=good), [0]
    taken = []
    for _ in range(12):
        [(name, _)] = propose(drafter, ask(tokens))
        taken.append(name)
        tokens = [*tokens, 2, 2]
        tell(drafter, tokens)
    assert (taken[0], taken[-3:]) == ("bad", ["good"] * 3)
    assert len(bad.asks) + len(good.asks) == 12


def test_a_network_that_was_not_asked_for_long_gets_a_new_chance() -> None:
    network, lookup = Source([1] * 8, needs=NETWORK), Source([2] * 2, match=1)
    drafter, tokens = chain(network=network, lookup=lookup), [0]
    for number in range(120):
        propose(drafter, ask(tokens))
        tokens = [*tokens, 3 if number % 3 else 2]
        tell(drafter, tokens)
    assert 3 < len(network.asks) < 60


# --- as one -------------------------------------------------------------------------------------


def test_needs_are_those_of_all() -> None:
    small, large = KVShape(1, 8, torch.float32), KVShape(2, 16, torch.float16)
    found = united(
        [
            Needs(features=(3, 1), layers=(small,), lookahead=4, successors=1, draft_slots=2),
            Needs(features=(1, 5), layers=(large, small), lookahead=2, reads=(0, 7), successors=2),
            Needs(),
        ]
    )
    assert found == Needs(
        features=(3, 1, 5),
        layers=(small, large, small),
        lookahead=4,
        reads=(0, 7),
        successors=2,
        draft_slots=2,
    )


def test_each_member_hears_of_the_rows_it_wants() -> None:
    """Columns of a layer are those of its place among all that are wanted."""
    members = {
        "both": Source([], needs=Needs(features=(3, 1))),
        "last": Source([], needs=Needs(features=(5, 3))),
        "none": Source([]),
    }
    rows = torch.arange(12.0).reshape(2, 6)  # layers 3, 1, 5, two columns each
    chain(**members).observe(CommitBatch([], rows))
    [both], [last], [none] = (member.news for member in members.values())
    assert both.features is not None
    assert last.features is not None
    assert both.features.tolist() == rows[:, :4].tolist()
    assert last.features.tolist() == rows[:, [4, 5, 0, 1]].tolist()
    assert none.features is None


def test_rows_are_synced_when_all_members_are_and_all_forget() -> None:
    class Late(Source):
        def synced(self, seq_id: int) -> int:
            return 7 + seq_id

    late, other = Late([]), Source([1])
    drafter = chain(late=late, other=other)
    assert other.synced(3) == SYNCED_ALWAYS
    assert drafter.synced(3) == 10
    drafter.forget([3, 4])
    assert late.forgotten == other.forgotten == [3, 4]


def test_counts_are_kept_by_source() -> None:
    model = StubModel()
    known = plain(model, [request("a", [1, 2, 3], greedy(30, ignore_eos=True))])["a"].token_ids
    text = [1, 2, 3, *known]
    right = Guesser(lambda ask: text[len(ask.tokens) :][: ask.num_tokens] if len(ask.tokens) % 2 else [])
    wrong = Guesser(lambda _: [-1])
    engine = make_engine(model, chain(wrong=wrong, right=right), k=4)
    found = run(engine, [request("a", [1, 2, 3], greedy(30, ignore_eos=True))])
    spec = found["a"].last.spec_decode_metrics
    assert spec is not None
    assert set(spec.by_source) == {"wrong", "right"}
    assert spec.by_source["wrong"].num_accepted_draft_tokens == 0
    for name in ("num_draft_tokens", "num_accepted_draft_tokens", "num_spec_steps"):
        assert sum(getattr(counts, name) for counts in spec.by_source.values()) == getattr(spec, name)
    assert {draft.source for draft in found.drafts} == {"wrong", "right"}


# --- the law ------------------------------------------------------------------------------------


def check_chain_law(change: Callable[[ChainDrafter], ChainDrafter]) -> None:
    """A member that draws beside two that look up, the choice following the text."""
    model, law = toy_model()
    members = [
        Member("drawn", Sampler(model, "probabilistic", sharpness=0.2), 3),
        Member("short", Source([3, 1], match=1), 2),
        Member("echo", Guesser(lambda ask: [ask.tokens[-1]] * 2), 2),
    ]
    found = run_toy(
        model, change(ChainDrafter(members)), load_verifier("standard"), num_texts=4_000, horizon=3
    )
    assert {draft.source for draft in found.drafts} == {"drawn", "short", "echo"}
    check_law(joint_counts(first_tokens(found, 3), model.vocab_size), law.joint(3), 1e-4)


def test_a_chain_with_drawn_guesses_keeps_the_law() -> None:
    check_chain_law(lambda drafter: drafter)


class Looks(ChainDrafter):
    """Takes drawn guesses only if it likes the first one."""

    def _draft(self, best: Sequence[Offer | None]) -> Draft:
        return super()._draft([o if o is None or o.q is None or o.tokens[0] < 2 else None for o in best])


def test_a_choice_that_looks_at_what_was_drawn_is_noticed() -> None:
    with pytest.raises(AssertionError, match="another law"):
        check_chain_law(lambda drafter: Looks(drafter.members))
