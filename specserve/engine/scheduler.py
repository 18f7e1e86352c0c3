"""Who runs, on how many rows, with which pages. One token budget, no phases.

Each step tries to make `computed` catch up with the known tokens plus the guesses. Running sequences
come first, then waiting ones, and waiting ones only if nobody lost its pages in this step.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass

from specserve.config.scheduler import SchedulerConfig
from specserve.engine.plan import Plan, Scheduled
from specserve.engine.sequence import Sequence
from specserve.errors import Overloaded
from specserve.kv.pages import PageAllocator
from specserve.types import Needs


@dataclass(slots=True)
class _Budget:
    """Rows left in this step. `prompt` is the share that prompt chunks may take; `inputs` counts the
    drafter's extra rows as well, so that its own batch fits too."""

    rows: int
    inputs: int
    prompt: int
    draft_slots: int

    def take(self, num_rows: int, prompt_rows: int) -> None:
        self.rows -= num_rows
        self.inputs -= num_rows + self.draft_slots
        self.prompt -= prompt_rows

    def give_back(self, num_rows: int, prompt_rows: int) -> None:
        self.rows += num_rows
        self.inputs += num_rows + self.draft_slots
        self.prompt += prompt_rows

    @property
    def is_spent(self) -> bool:
        return self.rows <= 0 or self.inputs <= self.draft_slots


class Scheduler:
    """Queues of sequences, the plan of the next step, and what its end frees. `commit.py` writes results."""

    def __init__(self, config: SchedulerConfig, pages: PageAllocator, needs: Needs) -> None:
        self.config = config
        self.pages = pages
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self._needs = needs
        # It cuts prompts into chunks; a prompt that may not be cut would never start.
        self._threshold = config.long_prefill_token_threshold if config.enable_chunked_prefill else 0

    def add(self, seqs: list[Sequence]) -> None:
        if len(self.waiting) + len(seqs) > self.config.max_waiting:
            raise Overloaded(f"{len(self.waiting)} requests are waiting already; try again later.")
        for seq in seqs:
            self._enqueue(seq)

    def plan(self) -> Plan:
        """Choose the next step's rows and reserve their pages."""
        plan = Plan()
        budget = self._open_budget()
        is_alone = len(self.running) + len(self.waiting) == 1
        self._plan_running(plan, budget, is_alone)
        if not plan.num_preemptions:
            self._plan_waiting(plan, budget, is_alone)
        plan.close()
        return plan

    def settle(self, plan: Plan, synced: Callable[[int], int]) -> list[Sequence]:
        """Share the pages that became full and true, drafter's rows included; release who finished."""
        done = []
        for item in plan.items:
            seq = item.seq
            self.pages.share(seq.table, seq.tokens, min(seq.computed, synced(seq.seq_id)))
            if seq.is_finished:
                self.remove(seq)
                done.append(seq)
        return done

    def remove(self, seq: Sequence) -> None:
        """Take a finished or aborted sequence out and free its pages."""
        (self.running if seq.is_running else self.waiting).remove(seq)
        seq.is_running = False
        self.pages.release(seq.table)

    # --- running ------------------------------------------------------------------------------

    def _open_budget(self) -> _Budget:
        rows = self.config.max_num_batched_tokens
        is_decoding = any(seq.computed == len(seq.tokens) - 1 for seq in self.running)
        prompt = self.config.max_prompt_rows_while_decoding if is_decoding else rows
        if not self.config.enable_chunked_prefill:
            prompt = rows
        return _Budget(rows, rows, prompt, self._needs.draft_slots)

    def _plan_running(self, plan: Plan, budget: _Budget, is_alone: bool) -> None:
        for seq in list(self.running):
            if not seq.is_running:  # lost its pages to one before it
                continue
            draft, probs = seq.take_draft()
            if budget.is_spent:
                plan.num_trimmed_draft_tokens += len(draft)
                continue
            num_rows = self._num_rows(seq, seq.computed, len(draft), budget, is_alone)
            num_rows = self._without_costly_drafts(seq, num_rows)
            num_drafts = max(0, num_rows - (len(seq.tokens) - seq.computed))
            plan.num_trimmed_draft_tokens += len(draft) - num_drafts
            if num_rows <= 0 or not self._reserve_or_preempt(seq, seq.computed + num_rows, plan, budget):
                plan.num_trimmed_draft_tokens += num_drafts
                continue
            probs = probs.cut(num_drafts) if probs is not None and num_drafts else None
            self._schedule(plan, budget, Scheduled(seq, seq.computed, num_rows, draft[:num_drafts], probs))

    def _num_rows(
        self, seq: Sequence, computed: int, num_drafts: int, budget: _Budget, is_alone: bool
    ) -> int:
        known = len(seq.tokens) - computed
        num_rows = known + num_drafts
        if self._threshold and not is_alone:
            num_rows = min(num_rows, self._threshold)
        if known > 1:
            num_rows = min(num_rows, budget.prompt)
        num_rows = min(num_rows, budget.rows, budget.inputs - budget.draft_slots)
        return min(num_rows, self.config.max_model_len - computed - 1)

    def _without_costly_drafts(self, seq: Sequence, num_rows: int) -> int:
        """Rows less those guesses for which someone would have to lose its pages."""
        num_slots = (len(seq.table.pages) + self.pages.num_free) * self.config.page_size
        if num_slots >= self.config.max_model_len:
            return num_rows
        return min(num_rows, max(num_slots - self._needs.lookahead, len(seq.tokens)) - seq.computed)

    def _reserve_or_preempt(self, seq: Sequence, num_slots: int, plan: Plan, budget: _Budget) -> bool:
        """Reserve pages, taking them from whoever is last in line; False when that is `seq` itself."""
        num_slots = self._with_lookahead(num_slots)
        while not self.pages.reserve(seq.table, num_slots):
            victim = self._last_in_line()
            self._give_back(victim, plan, budget)
            self._preempt(victim)
            plan.num_preemptions += 1
            if victim is seq:
                return False
        return True

    def _with_lookahead(self, num_slots: int) -> int:
        return min(num_slots + self._needs.lookahead, self.config.max_model_len)

    def _last_in_line(self) -> Sequence:
        if self.config.policy == "priority":
            return max(self.running, key=_priority_key)
        return self.running[-1]

    def _give_back(self, victim: Sequence, plan: Plan, budget: _Budget) -> None:
        """Undo the victim's place in this step's plan, if it had one. Its guesses are lost either way."""
        plan.num_trimmed_draft_tokens += len(victim.draft)
        for item in plan.items:
            if item.seq is victim:
                plan.items.remove(item)
                plan.num_trimmed_draft_tokens += len(item.draft)
                budget.give_back(item.num_rows, _prompt_rows(item))
                return

    def _preempt(self, seq: Sequence) -> None:
        """Recomputation: all rows are lost, the tokens stay."""
        self.running.remove(seq)
        seq.is_running = False
        self.pages.release(seq.table)
        seq.computed = 0
        seq.take_draft()
        seq.num_preemptions += 1
        self._enqueue(seq, in_front=True)

    def _schedule(self, plan: Plan, budget: _Budget, item: Scheduled) -> None:
        plan.items.append(item)
        budget.take(item.num_rows, _prompt_rows(item))

    # --- waiting ------------------------------------------------------------------------------

    def _enqueue(self, seq: Sequence, in_front: bool = False) -> None:
        if self.config.policy == "priority":
            insort(self.waiting, seq, key=_priority_key)
        elif in_front:
            self.waiting.insert(0, seq)
        else:
            self.waiting.append(seq)

    def _plan_waiting(self, plan: Plan, budget: _Budget, is_alone: bool) -> None:
        for seq in list(self.waiting):
            if len(self.running) >= self.config.max_num_seqs or budget.is_spent:
                return
            if not seq.is_waiting_for_leader and not self._admit(seq, plan, budget, is_alone):
                return

    def _admit(self, seq: Sequence, plan: Plan, budget: _Budget, is_alone: bool) -> bool:
        """Start a waiting sequence if its whole prompt could be held; False when it cannot be now."""
        needs_all_rows = seq.wants_prompt_logprobs and not seq.is_prompt_done
        # The last known token is always computed: its row gives the next one.
        limit = 0 if needs_all_rows else len(seq.tokens) - 1
        pages, keys = self.pages.match(seq.table.root, seq.tokens, limit)
        num_hits = len(pages) * self.config.page_size
        num_rows = self._num_rows(seq, num_hits, 0, budget, is_alone)
        if num_rows <= 0 or (
            not self.config.enable_chunked_prefill and num_rows < len(seq.tokens) - num_hits
        ):
            return False
        self.pages.adopt(seq.table, pages, keys)
        if self.pages.num_missing(seq.table, self._with_lookahead(len(seq.tokens))) > self.pages.num_free:
            self.pages.release(seq.table)
            return False
        self.pages.reserve(seq.table, self._with_lookahead(num_hits + num_rows))
        if seq.table.root is not None and self.config.enable_prefix_caching:
            plan.prefix_queries += len(seq.tokens)
            plan.prefix_hits += num_hits
        if seq.num_cached_tokens is None:
            seq.num_cached_tokens = num_hits
        seq.computed = num_hits
        self.waiting.remove(seq)
        self.running.append(seq)
        seq.is_running = True
        self._schedule(plan, budget, Scheduled(seq, num_hits, num_rows, []))
        return True


def _prompt_rows(item: Scheduled) -> int:
    """Rows counted against the prompt share: all of a chunk, none of a decode or verification."""
    return item.num_rows if len(item.seq.tokens) - item.start > 1 else 0


def _priority_key(seq: Sequence) -> tuple[int, float, int]:
    return (seq.request.priority, seq.request.arrival, seq.seq_id)
