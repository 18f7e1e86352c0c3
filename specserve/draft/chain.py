"""Several drafters as one: each text gets, step by step, the guesses that promise most.

All members hear of everything. Those that need nothing of the target look their guesses up, which costs next
to nothing: all of them are asked, and an offer is worth the tokens it should keep, by how this source's
guesses behind as long a match fared in this text lately (`draft.record`). The others run a network: the most
promising of them is asked where its record promises more than the best offer, and its answer stands unless it
is empty.

Every offer is compared with the tokens that came, whether it was taken or not. Of guesses that were drawn
nothing counts before that, neither ids nor number: a choice that looked at them would change the law.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from specserve.draft.base import Drafter, bind
from specserve.draft.record import Record, kind_of, value
from specserve.ops.program import Limits
from specserve.types import Ask, AskBatch, CommitBatch, Draft, DraftProbs, LayerCache, Needs


@dataclass(frozen=True, slots=True)
class Member:
    """A source: its name, and how many guesses it makes at most."""

    name: str
    drafter: Drafter
    num_tokens: int

    @property
    def looks_up(self) -> bool:
        needs = self.drafter.needs
        return not (needs.features or needs.layers or needs.reads)

    def num_for(self, ask: Ask) -> int:
        return min(ask.num_tokens, self.num_tokens)

    def may_answer(self, ask: Ask) -> bool:
        is_wanted = ask.source is None or ask.source == self.name
        needs = self.drafter.needs
        return is_wanted and needs.guesses and (not needs.prediction or bool(ask.predicted))


@dataclass(frozen=True, slots=True)
class Offer:
    """Guesses of the source with this number; `kind` is of their match."""

    source: int
    kind: int
    tokens: list[int]
    q: DraftProbs | None
    value: float


@dataclass(slots=True)
class Text:
    """One sequence: what is known of each source, and the offers the next tokens will judge."""

    records: list[Record]
    offers: list[Offer] = field(default_factory=list)
    num_tokens: int = 0  # when they were made

    def judge(self, tokens: Sequence[int]) -> None:
        if len(tokens) > self.num_tokens:
            for offer in self.offers:
                truth = tokens[self.num_tokens : self.num_tokens + len(offer.tokens)]
                self.records[offer.source].judge(offer.kind, offer.tokens, truth)
            self.offers = []


class ChainDrafter:
    """Of several members with as good an offer the first is taken."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = tuple(members)
        self.needs = united([member.drafter.needs for member in self.members])
        self._lookups = [i for i, member in enumerate(self.members) if member.looks_up]
        self._networks = [i for i, member in enumerate(self.members) if not member.looks_up]
        self._texts: dict[int, Text] = {}

    def bind(self, cache: Sequence[LayerCache], limits: Limits) -> None:
        first = 0
        for drafter in (member.drafter for member in self.members):
            end = first + len(drafter.needs.layers)
            bind(drafter, cache[first:end], limits)
            first = end

    def observe(self, commits: CommitBatch) -> None:
        for commit in commits.commits:
            if (text := self._texts.get(commit.seq_id)) is not None:
                text.judge(commit.tokens)
        for member in self.members:
            member.drafter.observe(self._news(commits, member.drafter.needs.features))

    def propose(self, asks: AskBatch) -> Draft:
        if (member := self._only(asks)) is not None:
            return _alone(member, asks)
        texts = [self._open(ask) for ask in asks.asks]
        for source in self._lookups:
            may = self.members[source].may_answer
            self._ask(source, [i for i, ask in enumerate(asks.asks) if may(ask)], asks, texts)
        best = [max(text.offers, key=lambda offer: offer.value, default=None) for text in texts]
        for source, chosen in self._promising(asks, texts, best).items():
            self._ask(source, chosen, asks, texts)
            for i in chosen:
                best[i] = next((offer for offer in texts[i].offers if offer.source == source), best[i])
        return self._draft(best)

    def synced(self, seq_id: int) -> int:
        return min(member.drafter.synced(seq_id) for member in self.members)

    def forget(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            self._texts.pop(seq_id, None)
        for member in self.members:
            member.drafter.forget(seq_ids)

    # --- parts of a guess ---------------------------------------------------------------------

    def _only(self, asks: AskBatch) -> Member | None:
        """The one member that may answer, if it is the same for all: then there is nothing to choose, and a
        text's record is not worth keeping."""
        able = [member for member in self.members if any(map(member.may_answer, asks.asks))]
        return able[0] if len(able) == 1 and all(map(able[0].may_answer, asks.asks)) else None

    def _open(self, ask: Ask) -> Text:
        """Its text, with no offers yet."""
        text = self._texts.get(ask.seq_id)
        if text is None:
            text = self._texts[ask.seq_id] = Text([Record() for _ in self.members])
        text.offers, text.num_tokens = [], len(ask.tokens)
        return text

    def _ask(self, source: int, chosen: Sequence[int], asks: AskBatch, texts: Sequence[Text]) -> None:
        """Add this member's offers to the chosen texts."""
        if not chosen:
            return
        member = self.members[source]
        asked = [asks.asks[i] for i in chosen]
        draft = member.drafter.propose(AskBatch([_capped(ask, member.num_tokens) for ask in asked]))
        q, matches = draft.q or [None] * len(chosen), draft.matches or [0] * len(chosen)
        for i, ask, tokens, own, match in zip(chosen, asked, draft.tokens, q, matches, strict=True):
            if tokens:
                kind, num = (kind_of(match), len(tokens)) if own is None else (0, member.num_for(ask))
                worth = value(texts[i].records[source].rate(kind), num)
                texts[i].offers.append(Offer(source, kind, tokens, own, worth))

    def _promising(
        self, asks: AskBatch, texts: Sequence[Text], best: Sequence[Offer | None]
    ) -> dict[int, list[int]]:
        """Which networks are to be asked about which texts."""
        found: dict[int, list[int]] = {}
        for i, (ask, text, offer) in enumerate(zip(asks.asks, texts, best, strict=True)):
            worth = {
                source: value(text.records[source].rate(0), self.members[source].num_for(ask))
                for source in self._networks
                if self.members[source].may_answer(ask)
            }
            first = max(worth, key=worth.__getitem__, default=None)
            if first is not None and (offer is None or worth[first] > offer.value):
                found.setdefault(first, []).append(i)
                del worth[first]
            for source in worth:  # who is not asked for long is given a new chance
                text.records[source].fade()
        return found

    def _draft(self, best: Sequence[Offer | None]) -> Draft:
        is_drawn = any(offer is not None and offer.q is not None for offer in best)
        return Draft(
            [offer.tokens if offer else [] for offer in best],
            [offer.q if offer else None for offer in best] if is_drawn else None,
            sources=[self.members[offer.source].name if offer else None for offer in best],
        )

    def _news(self, commits: CommitBatch, wanted: tuple[int, ...]) -> CommitBatch:
        """The same with only those columns that a member wants."""
        rows, layers = commits.features, self.needs.features
        if rows is None or wanted == layers:
            return commits
        if not wanted:
            return replace(commits, features=None)
        size = rows.shape[1] // len(layers)
        columns = [rows[:, size * at : size * (at + 1)] for at in map(layers.index, wanted)]
        return replace(commits, features=torch.cat(columns, 1))


def united(needs: Sequence[Needs]) -> Needs:
    """What several drafters want together. Their layers follow one another, in order."""
    return Needs(
        features=tuple(dict.fromkeys(layer for one in needs for layer in one.features)),
        layers=tuple(shape for one in needs for shape in one.layers),
        lookahead=max(one.lookahead for one in needs),
        reads=tuple(dict.fromkeys(layer for one in needs for layer in one.reads)),
        successors=max(one.successors for one in needs),
        draft_slots=max(one.draft_slots for one in needs),
        prediction=all(one.prediction for one in needs if one.guesses),
        guesses=any(one.guesses for one in needs),
    )


def _alone(member: Member, asks: AskBatch) -> Draft:
    draft = member.drafter.propose(AskBatch([_capped(ask, member.num_tokens) for ask in asks.asks]))
    sources = [member.name if tokens else None for tokens in draft.tokens]
    return Draft(draft.tokens, draft.q, draft.confidence, draft.matches, sources)


def _capped(ask: Ask, num_tokens: int) -> Ask:
    return ask if ask.num_tokens <= num_tokens else replace(ask, num_tokens=num_tokens)
