"""The half of the plugin in the worker's process: lends the cache, decides when, and applies what came back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kvtriage import Access, CompressOutcome, Outcome, Registration, SequenceFate
from kvtriage.vllm.compaction_calls import CompactionCalls, Due
from kvtriage.vllm.kv_memory import AllocateShared
from kvtriage.vllm.layout import Layout, cache_spec, prove_layout
from kvtriage.vllm.quarantine import Quarantine
from kvtriage.vllm.query_slots import QuerySlots
from kvtriage.vllm.refusals import refuse_layers
from kvtriage.vllm.request_book import Live, RequestBook, StepOfRequest, step_of
from kvtriage.vllm.service_link import ServiceLink
from kvtriage.vllm.settings import Settings
from kvtriage.vllm.stats import Stats
from kvtriage.vllm.step_report import Cut, Lost, StepNews, StepReport
from kvtriage.vllm.versions import UnsupportedEngine

log = logging.getLogger("kvtriage.vllm")


@dataclass(frozen=True, slots=True)
class _DueRow:
    """A request of this step that is compacted at its end."""

    live: Live
    row: int  # in vLLM's batch
    rows: int  # in the cache


class WorkerSide:
    """One thread. `attentions`: all layers of the model by name."""

    def __init__(self, settings: Settings, attentions: dict[str, Any]) -> None:
        self.memory = AllocateShared()
        self.stats = Stats()
        self._settings = settings
        self._attentions = attentions
        self._book = RequestBook(settings)
        self._quarantine = Quarantine()
        self._report = StepReport()
        self._due: list[_DueRow] = []
        self._runner: Any = None
        self._layout: Layout | None = None
        self._link: ServiceLink | None = None  # from register on, as are _slots and _calls

    # ---- start -------------------------------------------------------------------------------------

    def register(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Proves the layout, lends the memory, taps the queries. UnsupportedEngine before anything is lent."""
        layers = {name: self._attentions[name] for name in kv_caches}
        refuse_layers(layers)
        first = next(iter(layers.values()))
        cache = next(iter(kv_caches.values()))
        self._layout = layout = Layout.of(cache)
        base = torch.frombuffer(self.memory.memory.buffer, dtype=torch.int8).data_ptr()
        offsets = []
        for name, tensor in kv_caches.items():
            offset = tensor.data_ptr() - base
            if Layout.of(tensor) != layout or not 0 <= offset <= self.memory.memory.size - tensor.nbytes:
                raise UnsupportedEngine(f"kvtriage: the KV cache of {name} differs, or is not in lent memory")
            offsets.append(offset)
        prove_layout(layout, first, cache.dtype)
        q_heads, window = first.impl.num_heads, self._settings.most_window
        self._slots = QuerySlots(
            len(offsets), self._settings.slots, window, q_heads, layout.dim, cache.dtype
        )
        spec = cache_spec(layout, cache.dtype, offsets, q_heads)
        access = Access.READ if self._settings.observes else Access.READ_WRITE
        regions = [self.memory.memory.lend(access=access), self._slots.lend()]
        self._link = ServiceLink(self._settings, Registration(regions, [spec]))
        self._calls = CompactionCalls(self._link, self._slots, first.impl, self._settings.observes)
        for index, layer in enumerate(layers.values()):
            layer.impl.forward = self._tapped(layer.impl.forward, index)

    def _tapped(self, forward: Callable[..., Any], index: int) -> Callable[..., Any]:
        """vLLM hands connectors the keys and values, but not the queries."""

        def tapped(
            layer: Any, query: Any, key: Any, value: Any, cache: Any, metadata: Any, *rest: Any, **named: Any
        ) -> Any:
            if metadata is not None:  # None: a warm-up
                self._slots.copy(index, query)
            return forward(layer, query, key, value, cache, metadata, *rest, **named)

        return tapped

    # ---- a step ------------------------------------------------------------------------------------

    def forget(self, news: StepNews) -> None:
        """Before anything else of a step: what finished requests held is free, preempted ones start anew."""
        gone = self._book.forget(news.finished)
        for request_id in news.preempted:
            live = self._book.get(request_id)
            if live is not None:
                live.start_anew()
                gone.append(live)
        for live in gone:
            self._give_slot_back(live)
        if self._link is not None:
            self._link.release([live.sequence_id for live in gone if live.revision or live.generation])

    def begin_step(self, runner: Any, scheduled: Any) -> None:
        """Before slots are computed: which requests are due, and which queries may vote (Lengths)."""
        self._runner = runner
        self._due = []
        batch, end = runner.input_batch, 0
        for row, request_id in enumerate(batch.req_ids[: batch.num_reqs]):
            new = scheduled.num_scheduled_tokens[request_id]
            end += new
            state = runner.requests[request_id]
            live = self._book.enter(request_id, state)
            step = step_of(live, int(batch.num_computed_tokens_cpu[row]), new, state.num_tokens)
            if step is not None:
                self._plan(live, step, row, end)
        self._slots.planned()

    def dropped(self, request_ids: list[str]) -> list[int]:
        return self._book.dropped(request_ids)

    def _plan(self, live: Live, step: StepOfRequest, row: int, end: int) -> None:
        if step.due and step.rows <= live.kept_rows:
            self._missed(live, step.rows, "within_budget")
            return
        if step.queries:
            if live.slot is None:
                live.slot = self._slots.take()
            if live.slot is not None:
                self._slots.add(live.slot, end - step.queries, end)
            elif step.due:
                self.stats.count("no_slot")
                if not live.prefilled:
                    self._missed(live, step.rows, "")
                return  # while it decodes: a step later
        if step.due:
            self._due.append(_DueRow(live, row, step.rows))

    def end_forward(self) -> None:
        """After the forward pass and before sampling: the cache holds every row of the step."""
        for ticket in self._quarantine.over():
            self._report.quiet.append(ticket)
        due, self._due = self._due, []
        if not due:
            return
        assert self._layout is not None
        begin = time.monotonic()
        asked = [
            Due(item.live, item.rows, self._table(item)[: -(-item.rows // self._layout.slots)]) for item in due
        ]
        outcomes = self._calls.run(asked)
        self.stats.add("step_wait_seconds", time.monotonic() - begin)
        for item, outcome in zip(due, outcomes):
            self._apply(item, outcome)

    def take_report(self) -> StepReport | None:
        report, self._report = self._report, StepReport()
        return report or None

    def close(self) -> None:
        if self._link is not None:
            self._link.close()

    # ---- what became of a request --------------------------------------------------------------------

    def _apply(self, item: _DueRow, outcome: CompressOutcome | None) -> None:
        """None: there is no service."""
        live, rows = item.live, item.rows
        self._give_slot_back(live)
        if outcome is None:
            self._missed(live, rows, "unavailable")
            return
        fate = outcome.fates[0]
        if fate.outcome is Outcome.DAMAGED:
            self._lost(item, outcome)
        elif fate.outcome is Outcome.APPLIED and self._settings.observes:
            self.stats.observed(rows, outcome)
            self._missed(live, rows, "")
        elif fate.outcome is Outcome.APPLIED:
            self._cut(item, fate)
            self.stats.compacted(rows, fate.kept, outcome)
        else:
            log.warning("request %s stays as it is: %s", live.request_id, outcome.error)
            self._missed(live, rows, "unchanged")

    def _missed(self, live: Live, rows: int, counter: str) -> None:
        """No compaction this time; the next one is due after `every` more tokens."""
        self._give_slot_back(live)
        live.prefilled, live.rows_then = True, rows
        if counter:
            self.stats.count(counter)

    def _cut(self, item: _DueRow, fate: SequenceFate) -> None:
        """The same cut as in the scheduler: blocks behind the kept rows are not ours any more."""
        assert self._layout is not None
        live = item.live
        live.dropped += item.rows - fate.kept
        live.revision = fate.kv_revision
        live.prefilled, live.rows_then = True, fate.kept
        blocks = -(-fate.kept // self._layout.slots)
        self._cut_table(item, blocks)
        self._report.cut[live.request_id] = Cut(live.dropped, blocks)

    def _lost(self, item: _DueRow, outcome: CompressOutcome) -> None:
        live = item.live
        log.error("request %s: rows of its cache are lost: %s", live.request_id, outcome.error)
        ticket = self._calls.quarantine(self._quarantine, outcome)
        self._report.lost[live.request_id] = Lost(tuple(self._table(item)), ticket)
        self._cut_table(item, 0)
        live.start_anew()
        self.stats.count("lost")

    def _table(self, item: _DueRow) -> list[int]:
        blocks: list[int] = self._runner.requests[item.live.request_id].block_ids[0]
        return blocks

    def _cut_table(self, item: _DueRow, blocks: int) -> None:
        del self._table(item)[blocks:]
        table = self._runner.input_batch.block_table.block_tables[0]
        table.block_table.np[item.row, blocks : table.num_blocks_per_row[item.row]] = 0
        table.num_blocks_per_row[item.row] = blocks

    def _give_slot_back(self, live: Live) -> None:
        if live.slot is not None:
            self._slots.give_back(live.slot)
            live.slot = None
