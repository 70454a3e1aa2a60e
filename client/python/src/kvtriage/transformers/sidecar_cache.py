"""A KV cache for transformers that lives in memory shared with kvtriaged, and is compacted by it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, final

import torch
from transformers.cache_utils import Cache

from kvtriage import (
    CallOptions,
    CompressOutcome,
    KvtriageError,
    LengthRule,
    Measure,
    ObserveOutcome,
    Outcome,
    Policy,
    ScorerKind,
    Session,
)
from kvtriage.transformers.attachment import attached
from kvtriage.transformers.compaction_calls import CompactionCalls
from kvtriage.transformers.errors import KvDamaged, UnsupportedModel
from kvtriage.transformers.holes import Holes
from kvtriage.transformers.kept_map import KeptMap
from kvtriage.transformers.lent_cache import LentCache
from kvtriage.transformers.model_geometry import geometry_of
from kvtriage.transformers.query_capture import QueryCapture
from kvtriage.transformers.resolved_policy import ResolvedPolicy, resolve_policy
from kvtriage.transformers.schedule import Schedule
from kvtriage.transformers.score_inputs import ScorerInputs
from kvtriage.transformers.sequence_book import SequenceBook
from kvtriage.transformers.sidecar_layer import SidecarLayer
from kvtriage.transformers.snapshot import Snapshot

logger = logging.getLogger("kvtriage.transformers")

# Query rows beside the policy's window for which there is room before the window has to move.
_SPARE_QUERY_ROWS = 64
_NO_MEASURE = Measure()
_CALL = CallOptions()


@final
class SidecarCache(Cache):
    """Give it to `generate` as past_key_values, inside `with cache.attach(model)`.

    Kept keys keep their rotation: the text's positions count on (get_seq_length) while fewer rows are in
    the cache (physical_len). With `renumber` kept rows are turned to 0, 1, ... at every eviction, and the
    next position is the number of rows.

    A service that is away changes nothing but the memory: the text goes on uncompressed, which is logged
    and counted in `evictions_missed`. Only rows that a dying service left half moved raise, KvDamaged.

    One thread at a time, as the model itself.
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

        capacity: rows per sequence; a prompt must fit before it is compacted.
        kept_tokens or kept_ratio: rows that stay, per layer and head. A ratio is of all tokens seen at the
            end of each prompt, and evictions while generating keep that number. Neither: `evict` does
            nothing, for programs that call `compress` themselves.
        query_rows: queries to capture. None: what the policy reads. Fewer make its window shorter; more
            are there for other policies that `compress` names.
        every: generated tokens between two evictions.
        lengths: LengthRule.ANY lets heads keep different numbers of rows (adakv). Their cache is as long
            as the longest, and can be compacted once: later evictions are refused.
        call: the deadline of an eviction, and whether one that was refused for load is tried again.

        UnsupportedModel when the model cannot run on a compacted cache; KvtriageError from the service.
        """
        config = getattr(model, "config", model)
        self.geometry = geometry_of(config)
        if renumber and self.geometry.rope.spec is None:
            raise UnsupportedModel(f"renumber: {self.geometry.rope.problem}")
        if renumber and lengths is not LengthRule.ONE:
            raise ValueError("renumber needs one length for all heads")
        if kept_tokens is not None and kept_ratio is not None:
            raise ValueError("one of kept_tokens and kept_ratio")
        self.schedule = Schedule(every)
        dtype = dtype or getattr(model, "dtype", None) or torch.float32
        place: Any = device or getattr(model, "device", "cpu")
        self.session = session
        self.capacity, self.batch = capacity, batch
        self.renumber, self.lengths = renumber, lengths
        self.evictions = 0
        self.evictions_missed = 0
        self.damaged = False
        self.padded = False
        self.is_attached = False
        self._kept_tokens, self._kept_ratio = kept_tokens, kept_ratio
        self._budget: int | None = None
        self._known = session.get_server_info().policies
        self._policy = resolve_policy(self._known, policy)
        if query_rows is not None and self._policy.accumulates and query_rows < capacity:
            self._policy = self._policy.with_window(query_rows)
        if self._policy.scorer is ScorerKind.EXPECTED_ATTENTION and batch > 1:
            raise ValueError("expected-attention takes the queries of one sequence: batch must be 1")
        self.lent = LentCache(session, self.geometry, batch, capacity, dtype, torch.device(place))
        wanted = self._query_rows_wanted(query_rows)
        spare = 0 if wanted >= capacity else max(wanted, _SPARE_QUERY_ROWS)
        self.capture = QueryCapture(self.geometry, batch, wanted + spare, wanted, dtype, torch.device(place))
        self.scorer_inputs = ScorerInputs(self.geometry, self.lent, self.capture)
        self.holes: Holes | None = None
        self.book = SequenceBook(batch, renumber)
        self._calls = CompactionCalls(
            session, self.lent, self.book, self.capture, self.scorer_inputs, lengths, renumber, call
        )
        self._kept = KeptMap(self.geometry.layers, batch, self.geometry.kv_heads)
        self._running: Policy | None = None  # whose scores the service keeps
        self._rows_captured = 0  # rows in the cache after the newest captured query
        self._open_at: int | None = None  # rows before the forward pass that runs now
        self._quarantine = 0
        planes = self.lent.tensor
        super().__init__(layers=[SidecarLayer(planes[i, 0], planes[i, 1]) for i in range(len(planes))])

    def _query_rows_wanted(self, query_rows: int | None) -> int:
        if query_rows is not None:
            return min(query_rows, self.capacity)
        return self.capacity if self._policy.needs_all_queries else max(1, self._policy.window_rows)

    # ---- what is in the cache ---------------------------------------------------------------

    @property
    def physical_len(self) -> int:
        """Rows in the cache now."""
        return self._sidecar(0).rows

    @property
    def logical_len(self) -> int:
        """Tokens seen."""
        return self.physical_len + self.book.dropped

    @property
    def dropped(self) -> int:
        """Tokens that have no row any more."""
        return self.book.dropped

    def keys(self, layer: int) -> torch.Tensor:
        """A view [batch, kv_heads, physical_len, head_dim]."""
        return self._sidecar(layer).used()[0]

    def values(self, layer: int) -> torch.Tensor:
        """A view [batch, kv_heads, physical_len, head_dim]."""
        return self._sidecar(layer).used()[1]

    def queries(self, layer: int) -> torch.Tensor:
        """A view [batch, rows, q_heads, head_dim] of the captured queries since the last eviction."""
        return self.capture.newest(layer, self.usable_queries)

    @property
    def usable_queries(self) -> int:
        """Captured query rows that belong to the newest rows of the cache as it is now."""
        return self.capture.fresh if self._rows_captured == self.physical_len else 0

    def original_positions(self, layer: int) -> torch.Tensor:
        """[batch, kv_heads, physical_len]: which token of the text each row is, counted from 0.

        -1: a row that a head does not use (LengthRule.ANY).
        """
        rows = self.physical_len
        return torch.stack(
            [
                torch.stack(
                    [
                        torch.from_numpy(self._kept.tokens_of(layer, sequence, head, rows))
                        for head in range(self.geometry.kv_heads)
                    ]
                )
                for sequence in range(self.batch)
            ]
        ).long()

    def _sidecar(self, layer: int) -> SidecarLayer:
        found = self.layers[layer]
        assert isinstance(found, SidecarLayer)
        return found

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
        select_only: nothing is written; the outcome has the kept sets and measures.

        Raises KvDamaged when rows were lost, RuntimeError inside a forward pass. What the service refuses
        is in the outcome.
        """
        chosen = self._policy if policy is None else resolve_policy(self._known, policy)
        self._require_one_length()
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
        if not select_only:
            self._take(outcome)
            if keep_state and outcome.outcome is Outcome.APPLIED:
                self._running = chosen.keeping(kept_tokens, kept_ratio)
        return outcome

    def evict(self) -> CompressOutcome | ObserveOutcome | None:
        """Cuts the cache back to its budget by its own policy, as `attach` does when it is due.

        None: there is nothing to do, or no amount was given. A policy that reads all queries goes on from
        the scores that the service keeps (Observe); the others are computed from the newest queries. When
        no eviction was made, the outcome says why; it is logged and counted.
        """
        budget = self._budget_now()
        self.schedule.evicted()
        if budget is None or self.padded or self.physical_len <= budget:
            return None
        if self.holes is not None:
            self.evictions_missed += 1
            logger.warning("heads keep different numbers of rows: going on with all %d", self.physical_len)
            return None
        outcome = self._count_newest(budget) or self.compress(
            kept_tokens=budget, keep_state=self._policy.accumulates and self._running is None
        )
        if outcome.outcome is not Outcome.APPLIED:
            self.evictions_missed += 1
            logger.warning(
                "an eviction of %d rows to %d did not happen (%s): going on uncompressed: %s",
                self.physical_len,
                budget,
                outcome.outcome.value,
                outcome.error,
            )
        return outcome

    def _count_newest(self, budget: int) -> ObserveOutcome | None:
        """Where running scores decide, the newest rows vote first. None: they have, or need not."""
        complete = self._running is None and self.usable_queries == self.physical_len
        if not self._policy.accumulates or complete or not self.usable_queries:
            return None
        self._require_between_passes()
        running = self._running or self._policy.keeping(budget)
        outcome = self._calls.observe(self._policy, running, self.physical_len, self.usable_queries)
        if outcome.outcome is not Outcome.APPLIED:
            return outcome
        if outcome.result is not None and any(step.started for step in outcome.result.steps):
            logger.warning("the service has no scores of the older rows: they begin with the newest ones")
        self._running = running
        self.capture.evicted()
        return None

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

    def _take(self, outcome: CompressOutcome) -> None:
        """Draws the conclusions of a call that may have moved rows."""
        fates = outcome.fates
        kept = {fate.kept for fate in fates if fate.outcome is Outcome.APPLIED}
        applied = [fate for fate in fates if fate.outcome is Outcome.APPLIED]
        if outcome.damaged or (applied and (len(applied) < len(fates) or len(kept) > 1)):
            # Also when only some sequences were moved: a batch has one length.
            self.abandon(outcome.quarantine)
            ids = outcome.damaged or self.book.ids
            raise KvDamaged(ids, f"rows of {len(ids)} sequences are lost: {outcome.error}")
        if not applied:
            return
        rows, left = self.physical_len, kept.pop()
        sets = [result.kept_sets for result in outcome.result.sequences] if outcome.result else None
        self._kept.evicted(sets, rows, left, self.logical_len)
        self.book.evicted(rows - left, [fate.kv_revision for fate in applied])
        self._set_rows(left)
        self.capture.evicted()
        self.holes = self._holes_left(left) if self.lengths is not LengthRule.ONE else None
        self._rows_captured = left
        self.evictions += 1

    def _holes_left(self, left: int) -> Holes | None:
        counts = torch.from_numpy(self._kept.counts()).to(self.lent.tensor.device)
        return Holes(counts, left) if int(counts.min()) < left else None

    def _set_rows(self, rows: int) -> None:
        for index in range(len(self.layers)):
            layer = self._sidecar(index)
            layer.position_gap = self.book.position_gap
            layer.set_rows(rows)

    def _require_between_passes(self) -> None:
        """A mask, once built, has the rows of its forward pass in it."""
        if self.damaged:
            raise KvDamaged(self.book.ids, "rows of this cache are lost: reset it first")
        lengths = {self._sidecar(index).rows for index in range(len(self.layers))}
        if self._open_at is not None or len(lengths) > 1:
            raise RuntimeError("a forward pass is running: compact between two passes")

    def _require_one_length(self) -> None:
        self._require_between_passes()
        if self.holes is not None:
            raise ValueError("heads keep different numbers of rows: such a cache can be compacted once")

    # ---- a forward pass, as attach() sees it -----------------------------------------------------

    @contextmanager
    def attach(self, model: Any) -> Iterator[SidecarCache]:
        """While it lasts, forward passes of `model` with this cache are followed: their queries are
        captured, and the cache is compacted when it is due. On a normal exit, too.

        UnsupportedModel when the model does not fit the cache, or is set to something that it cannot do.
        """
        with attached(self, model):
            self.is_attached = True
            try:
                yield self
            finally:
                self.is_attached = False
        if self.schedule.prefilled:
            self.evict()
        self.schedule.turn_ended()

    def begin_pass(self, new_tokens: int, padded: bool) -> None:
        """A forward pass of so many tokens is about to begin. For `attach`."""
        if self.damaged:
            raise KvDamaged(self.book.ids, "rows of this cache are lost: reset it first")
        if padded and not self.padded:
            self.padded = True
            logger.warning("this batch is padded: it runs uncompressed, because padding is masked by row")
        if self.schedule.due(new_tokens):
            self.evict()
        self._open_at = self.physical_len

    def end_pass(self, new_tokens: int, failed: bool) -> None:
        """It has ended. One that failed half way leaves nothing behind."""
        assert self._open_at is not None
        begin, self._open_at = self._open_at, None
        if failed:
            self.capture.clear()
            self._set_rows(begin)
            return
        self._rows_captured = self.physical_len
        self.schedule.forward_done(new_tokens)

    @property
    def in_pass(self) -> bool:
        return self._open_at is not None

    # ---- other contents -----------------------------------------------------------------------------

    def reset(self, wait_seconds: float = 10.0) -> None:
        """Empties the cache. KvDamaged when a service that may still write into it has not ended by then."""
        self._wait_until_quiet(wait_seconds)
        self._forget_scores()
        self.book.start_anew()
        self._kept.clear()
        self.capture.clear()
        self.schedule.clear()
        self._rows_captured, self._budget, self._open_at = 0, None, None
        self.damaged = self.padded = False
        self.holes = None
        self._set_rows(0)

    def adopt(self, rows: int) -> None:
        """An empty cache: its first `rows` rows, tokens 0 and on, were written into `lent` by the caller."""
        self._set_rows(rows)

    def abandon(self, quarantine: int) -> None:
        """Rows are lost, or may be. `quarantine`: of the outcome that said so. Until reset() or restore()."""
        self.damaged = True
        self._quarantine = quarantine

    def crop(self, max_length: int) -> None:
        """Takes back the newest tokens, so that get_seq_length() is at most `max_length`.

        A negative number: so many tokens. ValueError below the rows that the last eviction left.
        """
        length = self.get_seq_length()
        target = length + max_length if max_length < 0 else max_length
        taken = max(0, length - target)
        rows = self.physical_len - taken
        if rows < self._kept.rows:
            raise ValueError(
                f"cropping to {target} would cut into the {self._kept.rows} rows that an eviction left: rows "
                "that were evicted before cannot come back"
            )
        self.schedule.took_back(taken)
        if taken:
            usable = self._rows_captured == self.physical_len
            self.capture.crop(taken)
            self._set_rows(rows)
            self._rows_captured = rows if usable else 0

    def snapshot(self) -> Snapshot:
        """A copy of everything that the cache holds. Independent of it."""
        self._require_between_passes()
        return Snapshot(
            rows=self.lent.tensor[..., : self.physical_len, :].clone(),
            captured=self.capture.snapshot(),
            rows_captured=self._rows_captured,
            dropped=self.book.dropped,
            kept=self._kept.copy(),
            schedule=self.schedule.copy(),
            budget=self._budget,
            padded=self.padded,
            holes=self.holes,
        )

    def restore(self, snapshot: Snapshot, wait_seconds: float = 10.0) -> None:
        """The cache holds what it held then. To the service its sequences start anew. Waits as reset does."""
        self._wait_until_quiet(wait_seconds)
        self._forget_scores()
        rows = snapshot.rows.shape[-2]
        self.lent.tensor[..., :rows, :].copy_(snapshot.rows)
        self.book.start_anew(snapshot.dropped)
        self._kept = snapshot.kept.copy()
        self.capture.restore(snapshot.captured)
        self.schedule = snapshot.schedule.copy()
        self._rows_captured, self._budget = snapshot.rows_captured, snapshot.budget
        self.padded, self.damaged, self._open_at = snapshot.padded, False, None
        self.holes = snapshot.holes
        self._set_rows(rows)

    def _forget_scores(self) -> None:
        """No job touches the rows any more, and their scores are gone."""
        self._running = None
        try:
            self.session.release_sequences(self.book.ids)
        except KvtriageError as error:
            # The higher generation says the same to a service that comes back.
            logger.info("releasing sequences: %s", error)

    def _wait_until_quiet(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._quarantine and not self.session.quiet(self._quarantine):
            if time.monotonic() > deadline:
                raise KvDamaged(
                    self.book.ids, "the service that moved rows may still write: the memory is not ours yet"
                )
            time.sleep(0.005)
        self._quarantine = 0

    def close(self) -> None:
        """Ends the lending. The cache must not be used any more."""
        self._forget_scores()
        self.lent.close()

    def __enter__(self) -> SidecarCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
