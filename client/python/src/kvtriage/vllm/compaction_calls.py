"""The calls to kvtriaged about requests that are due."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from kvtriage import (
    CompressOutcome,
    CompressRequest,
    InPlace,
    KeysOnly,
    LengthRule,
    Measure,
    QueryStage,
    QueryWindow,
    ScoreInputs,
    SelectOnly,
    Sequence,
    Sharing,
)
from kvtriage.vllm.quarantine import Quarantine
from kvtriage.vllm.query_slots import QuerySlots
from kvtriage.vllm.request_book import Live
from kvtriage.vllm.service_link import Lent, ServiceLink


@dataclass(frozen=True, slots=True)
class Due:
    live: Live
    rows: int
    table: list[int]  # blocks of these rows


class CompactionCalls:
    """`attention`: vLLM's implementation of a layer, for its scale and soft cap."""

    def __init__(self, link: ServiceLink, slots: QuerySlots, attention: Any, observe: bool) -> None:
        self._link, self._slots, self._observe = link, slots, observe
        self._scale = float(attention.scale)
        self._softcap = float(attention.logits_soft_cap or 0.0)
        self._asked: Lent | None = None

    def run(self, due: Seq[Due]) -> list[CompressOutcome | None]:
        """One outcome each, in order. None: no service."""
        lent = self._asked = self._link.lent
        if lent is None:
            return [None] * len(due)
        return list(self._link.compress(lent, [self._request(lent, item) for item in due]))

    def quarantine(self, quarantine: Quarantine, outcome: CompressOutcome) -> int:
        """Of an outcome of the last run; 0 when its blocks may be reused at once."""
        if not outcome.quarantine or self._asked is None:
            return 0
        return quarantine.enter(self._asked.session, outcome.quarantine)

    def _request(self, lent: Lent, due: Due) -> CompressRequest:
        live = due.live
        assert live.plan is not None  # it would not be due
        begin, count = self._slots.span(live.slot) if live.slot is not None else (0, 0)
        inputs = ScoreInputs(softmax_scale=self._scale, logit_softcap=self._softcap)
        if count:
            queries = self._slots.tensor_spec(lent.regions[1])
            inputs.source = QueryWindow(queries, QueryStage.AFTER_ROPE)
        else:
            inputs = ScoreInputs(KeysOnly())
        return CompressRequest(
            cache=lent.cache,
            sequences=[
                Sequence(
                    sequence_id=live.sequence_id,
                    generation=live.generation,
                    kv_revision=live.revision,
                    logical_len=due.rows + live.dropped,
                    physical_len=due.rows,
                    table=due.table,
                    sharing=Sharing.UNKNOWN if self._observe else Sharing.ALL_PRIVATE,
                    rows_begin=begin,
                    rows_count=count,
                )
            ],
            policy=live.plan.policy.keeping(live.kept_rows),
            inputs=inputs,
            act=SelectOnly() if self._observe else InPlace(),
            lengths=LengthRule.ONE,
            measure=Measure(retained_mass=True, output_error=True) if self._observe and count else Measure(),
        )
