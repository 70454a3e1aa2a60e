"""What is in a lent cache: rows, lengths, captured queries. Nothing here decides what stays."""

from __future__ import annotations

import logging
import time
import weakref
from functools import cached_property
from typing import Any

import torch
from transformers.cache_utils import Cache

from kvtriage import CallOptions, CompressOutcome, KvtriageError, LengthRule, Outcome, Session
from kvtriage.transformers.errors import KvDamaged
from kvtriage.transformers.fresh_rows import FreshRows
from kvtriage.transformers.holes import Holes
from kvtriage.transformers.kept_map import KeptMap
from kvtriage.transformers.lent_cache import LentCache, give_back
from kvtriage.transformers.model_geometry import ModelGeometry
from kvtriage.transformers.query_capture import QueryCapture
from kvtriage.transformers.sequence_book import SequenceBook
from kvtriage.transformers.sidecar_layer import SidecarLayer

logger = logging.getLogger("kvtriage.transformers")

# Query rows beside those that may vote for which there is room before they have to move.
_SPARE_QUERY_ROWS = 64


class CacheContents(Cache):
    """Keys and values in memory that the service maps, and what is known about them.

    physical_len rows are in the cache; get_seq_length() is the position of the next token, which is larger
    by the rows that were dropped, unless the cache renumbers.
    """

    def __init__(
        self,
        session: Session,
        geometry: ModelGeometry,
        batch: int,
        capacity: int,
        query_rows: int,
        renumber: bool,
        lengths: LengthRule,
        dtype: torch.dtype,
        device: torch.device,
        call: CallOptions,
    ) -> None:
        self.session, self.geometry = session, geometry
        self._call = call
        self.capacity, self.batch = capacity, batch
        self.renumber, self.lengths = renumber, lengths
        self.damaged = False
        spare = 0 if query_rows >= capacity else max(query_rows, _SPARE_QUERY_ROWS)
        self.capture = QueryCapture(geometry, batch, query_rows + spare, query_rows, dtype, device)
        self.book = SequenceBook(batch, renumber)
        self.lent = LentCache(session, geometry, batch, capacity, dtype, device)
        self._dropped = weakref.finalize(self, give_back, self.lent, self.book.ids)
        self._dropped.atexit = False  # the session's own end gives everything back
        self.holes: Holes | None = None
        self._kept = KeptMap(geometry.layers, batch, geometry.kv_heads)
        self._rows_captured = 0  # rows in the cache after the newest captured query
        self._open_at: int | None = None  # rows before the forward pass that runs now
        self._quarantine = 0
        planes = self.lent.tensor
        super().__init__(layers=[SidecarLayer(planes[i, 0], planes[i, 1]) for i in range(len(planes))])

    # ---- views ------------------------------------------------------------------------------

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

        -1: a row that a head does not use (LengthRule.ANY). ValueError when the answer to an eviction was
        lost, or had no room for the rows: they are right then, but not known.
        """
        rows = self.physical_len
        heads = [
            torch.from_numpy(self._kept.tokens_of(layer, sequence, head, rows))
            for sequence in range(self.batch)
            for head in range(self.geometry.kv_heads)
        ]
        return torch.stack(heads).view(self.batch, self.geometry.kv_heads, rows).long()

    @cached_property
    def fresh_rows(self) -> FreshRows:
        """Lent memory for recomputed rows of a layer, until close."""
        return FreshRows(self.lent)

    def _sidecar(self, layer: int) -> SidecarLayer:
        found = self.layers[layer]
        assert isinstance(found, SidecarLayer)
        return found

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each layer of a model, in the middle of a forward pass."""
        self.require_sound()
        if self.holes is not None and not self.in_pass:
            raise RuntimeError(
                "heads keep different numbers of rows: only an attached cache can mask the others"
            )
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    # ---- a forward pass, as `attach` sees it ----------------------------------------------------

    @property
    def in_pass(self) -> bool:
        return self._open_at is not None

    def begin_pass(self) -> None:
        self.require_sound()
        if self._rows_captured != self.physical_len:
            self.capture.clear()  # rows came that nobody saw: older queries do not join up with new ones
        self._open_at = self.physical_len

    def end_pass(self, failed: bool) -> None:
        """One that failed half way leaves no rows behind, and no queries."""
        assert self._open_at is not None
        begin, self._open_at = self._open_at, None
        if failed:
            self.capture.clear()
            self.set_rows(begin)
        else:
            self._rows_captured = self.physical_len

    def require_sound(self) -> None:
        if self.damaged:
            raise KvDamaged(self.book.ids, "rows of this cache are lost: reset it first")

    def require_between_passes(self) -> None:
        """A mask, once built, has the rows of its forward pass in it."""
        self.require_sound()
        lengths = {self._sidecar(index).rows for index in range(len(self.layers))}
        if self.in_pass or len(lengths) > 1:
            raise RuntimeError("a forward pass is running: compact between two passes")

    # ---- changes ---------------------------------------------------------------------------------

    def set_rows(self, rows: int) -> None:
        """The first `rows` rows count, in all layers."""
        for index in range(len(self.layers)):
            layer = self._sidecar(index)
            layer.position_gap = self.book.position_gap
            layer.set_rows(rows)

    def take_eviction(self, outcome: CompressOutcome) -> bool:
        """Draws the conclusions of a call that may have moved rows: whether it has. KvDamaged."""
        applied = [fate for fate in outcome.fates if fate.outcome is Outcome.APPLIED]
        lengths = {fate.kept for fate in applied}
        if outcome.damaged or (applied and (len(applied) < self.batch or len(lengths) > 1)):
            # Also when only some sequences were moved: a batch has one length.
            self.abandon(outcome.quarantine)
            ids = outcome.damaged or self.book.ids
            raise KvDamaged(ids, f"rows of {len(ids)} sequences are lost: {outcome.error}")
        if not applied:
            return False
        rows, left = self.physical_len, lengths.pop()
        sets = [result.kept_sets for result in outcome.result.sequences] if outcome.result else None
        ledger = [fate.kept_rows for fate in applied]
        self._kept.evicted(sets, rows, left, self.logical_len, ledger)
        self.book.evicted(rows - left, [fate.kv_revision for fate in applied])
        self.set_rows(left)
        self.capture.evicted()
        self._rows_captured = left
        if self.lengths is not LengthRule.ONE:
            counts = torch.from_numpy(self._kept.counts()).to(self.lent.tensor.device)
            self.holes = Holes(counts, left) if int(counts.min()) < left else None
        return True

    def take_back(self, tokens: int) -> None:
        """The newest tokens are gone. ValueError below the rows that the last eviction left."""
        rows = self.physical_len - tokens
        if rows < self._kept.rows:
            raise ValueError(
                f"{rows} rows would be left of the {self._kept.rows} that an eviction kept: what was evicted "
                "before cannot come back"
            )
        usable = self._rows_captured == self.physical_len
        self.capture.crop(tokens)
        self.set_rows(rows)
        self._rows_captured = rows if usable else 0

    def adopt(self, rows: int) -> None:
        """Into an empty cache: its first `rows` rows, tokens 0 and on, were written into `lent` by the caller."""
        self.set_rows(rows)

    def abandon(self, quarantine: int) -> None:
        """Rows are lost, or may be. `quarantine`: of the outcome that said so. Until `empty`."""
        self.damaged = True
        self._quarantine = quarantine

    def empty(self, wait_seconds: float, dropped: int = 0) -> None:
        """Nothing is in the cache; to the service its sequences start anew.

        KvDamaged when a service that may still write into the memory has not ended by then.
        """
        self._wait_until_quiet(wait_seconds)
        self.forget_scores()
        self.book.start_anew(dropped)
        self._kept.clear()
        self.capture.clear()
        self._rows_captured, self._open_at, self.holes = 0, None, None
        self.damaged = False
        self.set_rows(0)

    def forget_scores(self) -> None:
        """No job touches the rows any more, and their running scores are gone."""
        try:
            self.session.release_sequences(self.book.ids, self._call)
        except KvtriageError as error:
            # The higher generation says the same to a service that comes back.
            logger.info("releasing sequences: %s", error)

    def _wait_until_quiet(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._quarantine and not self.session.quiet(self._quarantine):
            if time.monotonic() > deadline:
                text = "the service that moved rows may still write: the memory is not ours yet"
                raise KvDamaged(self.book.ids, text)
            time.sleep(0.005)
        self._quarantine = 0

    def close(self) -> None:
        """Ends the lending. The cache must not be used any more. After an error: again."""
        self.forget_scores()
        self.lent.close()
        self._dropped.detach()
