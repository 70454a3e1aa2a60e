"""A KV cache for transformers that lives in memory shared with kvtriaged, and is compacted by it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, final

import torch

from kvtriage import (
    CallOptions,
    CompressOutcome,
    LengthRule,
    Measure,
    ObserveOutcome,
    Outcome,
    Policy,
    ScorerKind,
    Session,
)
from kvtriage.transformers.answer_format import AnswerFormat
from kvtriage.transformers.attachment import attached
from kvtriage.transformers.cache_contents import CacheContents
from kvtriage.transformers.compaction_calls import CompactionCalls
from kvtriage.transformers.errors import UnsupportedModel
from kvtriage.transformers.model_geometry import geometry_of
from kvtriage.transformers.resolved_policy import ResolvedPolicy, check_amount, check_known, resolve_policy
from kvtriage.transformers.schedule import Schedule
from kvtriage.transformers.score_inputs import ScorerInputs
from kvtriage.transformers.snapshot import Snapshot

logger = logging.getLogger("kvtriage.transformers")

_NO_MEASURE = Measure()
_CALL = CallOptions()


@final
class SidecarCache(CacheContents):
    """Give it to `generate` as past_key_values, inside `with cache.attach(model)`.

    Kept keys keep their rotation: the text's positions count on (get_seq_length) while fewer rows are in
    the cache (physical_len). With `renumber` kept rows are turned to 0, 1, ... at every eviction, and the
    next position is the number of rows: later turns then go through this package's `generate`, or are given
    as their new tokens alone. transformers' own would feed it tokens again that it has seen.

    A service that is away changes nothing but the memory: the text goes on uncompressed, which is logged
    and counted in `evictions_missed`. Only rows that a dying service left half moved raise, KvDamaged.

    An answer says which rows were kept as long as that fits ServerLimits.max_response_bytes: batch x layers
    x KV heads x rows / 8 bytes at most. Beyond, evictions go on, and original_positions raises.

    A context manager, or close() it. One thread at a time, as the model itself.
    """

    def __init__(
        self,
        model: Any,
        session: Session,
        capacity: int,
        batch: int = 1,
        policy: Policy | str = "snapkv",
        kept_tokens: int | None = None,
        kept_ratio: float | None = None,
        query_rows: int | None = None,
        every: int = 512,
        renumber: bool = False,
        lengths: LengthRule = LengthRule.ONE,
        call: CallOptions = _CALL,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """`model`: the model, or its configuration (then give dtype and device where it does not say them).

        capacity: rows per sequence. A prompt must fit before it is compacted; the whole text, where a
            service that goes away must not end the generation.
        kept_tokens or kept_ratio: rows that stay, per layer and head. A ratio is of all tokens seen at the
            end of each prompt, and evictions while generating keep that number. Neither: `evict` does
            nothing, for programs that call `compress` themselves.
        query_rows: queries to capture. None: what the policy reads. Fewer make its window shorter; more
            are there for other policies that `compress` names.
        every: generated tokens between two evictions.
        lengths: LengthRule.ANY lets heads keep different numbers of rows (adakv). Their cache is as long
            as the longest, and can be compacted once: later evictions are refused.
        call: the deadline of each call while the model runs, and whether one that was refused for load is
            tried again.

        UnsupportedModel when the model cannot run on a compacted cache; ValueError for arguments that can
        mean nothing; KvtriageError from the service.
        """
        geometry = geometry_of(getattr(model, "config", model))
        if renumber and geometry.rope.spec is None:
            raise UnsupportedModel(f"renumber: {geometry.rope.problem}")
        if renumber and lengths is not LengthRule.ONE:
            raise ValueError("renumber needs one length for all heads")
        check_amount(kept_tokens, kept_ratio)
        if query_rows is not None and query_rows < 0:
            raise ValueError(f"query_rows={query_rows}")
        server = session.get_server_info()
        self._known = server.policies
        self._policy = resolve_policy(self._known, policy)
        check_known(self._known, self._policy.policy)
        if self._policy.scorer is ScorerKind.EXPECTED_ATTENTION:
            if batch > 1:
                raise ValueError("expected-attention takes the queries of one sequence: batch must be 1")
            if geometry.rope.spec is None:
                raise UnsupportedModel(
                    f"expected-attention has to turn queries back: {geometry.rope.problem}"
                )
        if query_rows is None:
            query_rows = capacity if self._policy.needs_all_queries else max(1, self._policy.window_rows)
        elif self._policy.accumulates and query_rows < capacity:
            self._policy = self._policy.with_window(query_rows)
        self.schedule = Schedule(every)
        super().__init__(
            session,
            geometry,
            batch,
            capacity,
            min(query_rows, capacity),
            renumber,
            lengths,
            dtype or getattr(model, "dtype", None) or torch.float32,
            torch.device(device or getattr(model, "device", None) or "cpu"),
            call,
        )
        try:
            self.scorer_inputs = ScorerInputs(geometry, self.lent, self.capture, renumber, call)
        except BaseException:
            super().close()
            raise
        self._calls = CompactionCalls(
            session,
            self.lent,
            self.book,
            self.capture,
            self.scorer_inputs,
            lengths,
            renumber,
            call,
            AnswerFormat(server.limits.max_response_bytes, batch, geometry.layers, geometry.kv_heads),
        )
        self.evictions = 0
        self.evictions_missed = 0
        self.attached_to: Any = None  # the model, inside `attach`
        self.padded = False
        self._kept_tokens, self._kept_ratio = kept_tokens, kept_ratio
        self._budget: int | None = None
        self._missing = ""  # why the last eviction was not made
        self._running: Policy | None = None  # whose scores the service keeps

    @contextmanager
    def attach(self, model: Any) -> Iterator[SidecarCache]:
        """While it lasts, forward passes of `model` with this cache are followed: their queries are
        captured, and the cache is compacted when it is due. On a normal exit, too.

        UnsupportedModel when the model does not fit the cache, or is set to something that it cannot do.
        """
        if self.attached_to is not None:
            raise RuntimeError("this cache is attached already")
        with attached(self, model):
            self.attached_to = model
            self.schedule.turn_begins()
            try:
                yield self
            finally:
                self.attached_to = None
        if self.schedule.prefilled:
            self.evict()

    # ---- compaction ---------------------------------------------------------------------------

    def compress(
        self,
        policy: Policy | str | None = None,
        *,
        kept_tokens: int | None = None,
        kept_ratio: float | None = None,
        measure: Measure = _NO_MEASURE,
        query_rows: int | None = None,
        select_only: bool = False,
        keep_state: bool = False,
    ) -> CompressOutcome:
        """Compacts now, between two forward passes, and says what became of the cache.

        policy: None is the cache's own. kept_ratio is of the rows in the cache.
        query_rows: newest query rows to bring; None: those that the policy reads, and for measures of a
            policy that reads none all that were captured.
        select_only: nothing is written; the outcome has the kept sets and measures. Sets that do not fit an
            answer come without rows (KeptSets.has_rows).

        Raises KvDamaged when rows were lost, RuntimeError inside a forward pass. What the service refuses
        is in the outcome.
        """
        chosen = self._policy if policy is None else resolve_policy(self._known, policy)
        self.require_between_passes()
        if self.holes is not None:
            raise ValueError("heads keep different numbers of rows: such a cache can be compacted once")
        if self.padded and not select_only:
            raise ValueError(
                "this batch is padded: padding is masked by row, so rows must stay where they are"
            )
        outcome = self._calls.compress(
            chosen,
            self.physical_len,
            self._query_rows_for(chosen, query_rows, measure),
            kept_tokens=kept_tokens,
            kept_ratio=kept_ratio,
            measure=measure,
            select_only=select_only,
            keep_state=keep_state,
        )
        if not select_only and self.take_eviction(outcome):
            self.evictions += 1
            if keep_state:
                self._running = chosen.keeping(kept_tokens, kept_ratio)
        return outcome

    def evict(self) -> CompressOutcome | ObserveOutcome | None:
        """Cuts the cache back to its budget by its own policy, as `attach` does when it is due.

        None: there is nothing to do, or no amount was given. A policy that reads all queries goes on from
        the scores that the service keeps (Observe); the others are computed from the newest queries. When
        no eviction was made, the outcome says why; it is counted, and logged once.
        """
        budget = self._budget_now()
        self.schedule.evicted()
        if budget is None or self.padded or self.physical_len <= budget:
            return None
        if self.holes is not None:
            self._missed(budget, "holes", "heads keep different numbers of rows")
            return None
        outcome = self._count_newest(budget) or self.compress(
            kept_tokens=budget, keep_state=self._policy.accumulates and self._running is None
        )
        if outcome.outcome is not Outcome.APPLIED:
            reason = outcome.error.reason if outcome.error else ""
            self._missed(budget, reason or outcome.outcome.value, str(outcome.error))
        elif self._missing:
            self._missing = ""
            logger.info("evictions are made again")
        return outcome

    def _missed(self, budget: int, reason: str, why: str) -> None:
        """Loud once, until an eviction is made or another reason stands in the way."""
        self.evictions_missed += 1
        level = logging.DEBUG if self._missing == reason else logging.WARNING
        self._missing = reason
        rows = self.physical_len
        logger.log(level, "%d rows were not cut to %d: going on uncompressed: %s", rows, budget, why)

    def _count_newest(self, budget: int) -> ObserveOutcome | None:
        """Where running scores decide, the newest rows vote first. None: they have, or need not."""
        complete = self._running is None and self.usable_queries == self.physical_len
        if not self._policy.accumulates or complete or not self.usable_queries:
            return None
        self.require_between_passes()
        outcome = self._observe(budget)
        if outcome.error is not None and outcome.error.reason == "sequence_stale":
            # Rows came whose queries were not captured: the service's sums end before them.
            self.forget_scores()
            outcome = self._observe(budget)
        if outcome.outcome is not Outcome.APPLIED:
            return outcome
        if outcome.result is not None and any(step.started for step in outcome.result.steps):
            logger.warning("the service has no scores of the older rows: they begin with the newest ones")
        self.capture.evicted()
        return None

    def _observe(self, budget: int) -> ObserveOutcome:
        running = self._running or self._policy.keeping(budget)
        outcome = self._calls.observe(self._policy, running, self.physical_len, self.usable_queries)
        if outcome.outcome is Outcome.APPLIED:
            self._running = running
        return outcome

    def _budget_now(self) -> int | None:
        """Rows to keep. A ratio is taken once per prompt."""
        if self._kept_ratio is None:
            return self._kept_tokens
        if self._budget is None or self.schedule.prefilled:
            self._budget = max(1, int(float(self.logical_len) * self._kept_ratio))
        return self._budget

    def _query_rows_for(self, policy: ResolvedPolicy, asked: int | None, measure: Measure) -> int:
        usable = self.usable_queries
        if asked is not None:
            return min(asked, usable)
        if policy.window_rows:
            return min(policy.window_rows, usable)
        measured = measure.retained_mass or measure.output_error or measure.oracle_recall
        return usable if policy.accumulates or measured else 0

    # ---- forward passes: for `attach` ------------------------------------------------------------

    def before_pass(self, new_tokens: int, padded: bool) -> None:
        """A forward pass of so many tokens is about to begin."""
        self.require_sound()
        if padded and not self.padded:
            self.padded = True
            logger.warning("this batch is padded: it runs uncompressed, because padding is masked by row")
        if self.schedule.due(new_tokens, self.capacity - self.physical_len):
            self.evict()
        self.begin_pass()

    def after_pass(self, new_tokens: int, failed: bool) -> None:
        self.end_pass(failed)
        if not failed:
            self.schedule.forward_done(new_tokens)

    # ---- other contents -----------------------------------------------------------------------------

    def reset(self, wait_seconds: float = 10.0) -> None:
        """Empties the cache. KvDamaged when a service that may still write into it has not ended by then."""
        self.empty(wait_seconds)
        self.schedule.clear()
        self.padded, self._budget = False, None

    def crop(self, max_length: int) -> None:
        """Takes back the newest tokens, so that get_seq_length() is at most `max_length`.

        A negative number: so many tokens. 0: none, as in later versions of transformers; reset() empties.
        ValueError below the rows that the last eviction left.
        """
        tokens = -max_length if max_length <= 0 else max(0, self.get_seq_length() - max_length)
        if tokens > self.capture.fresh and self._running is not None:
            self.forget_scores()  # they have votes of the tokens in them
        self.take_back(tokens)
        self.schedule.took_back(tokens)

    def forget_scores(self) -> None:
        self._running = None
        super().forget_scores()

    def snapshot(self) -> Snapshot:
        """A copy of everything that the cache holds. Independent of it."""
        self.require_between_passes()
        return Snapshot(
            rows=self.lent.tensor[..., : self.physical_len, :].clone(),
            captured=self.capture.snapshot(),
            rows_captured=self._rows_captured,
            dropped=self.dropped,
            kept=self._kept.copy(),
            holes=self.holes,
            schedule=self.schedule.copy(),
            budget=self._budget,
            padded=self.padded,
        )

    def restore(self, snapshot: Snapshot, wait_seconds: float = 10.0) -> None:
        """The cache holds what it held then. To the service its sequences start anew. Waits as reset does."""
        self.empty(wait_seconds, snapshot.dropped)
        rows = snapshot.rows.shape[-2]
        self.lent.tensor[..., :rows, :].copy_(snapshot.rows)
        self._kept = snapshot.kept.copy()
        self.capture.restore(snapshot.captured)
        self._rows_captured, self.holes = snapshot.rows_captured, snapshot.holes
        self.schedule = snapshot.schedule.copy()
        self._budget, self.padded = snapshot.budget, snapshot.padded
        self.set_rows(rows)

    def __enter__(self) -> SidecarCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
