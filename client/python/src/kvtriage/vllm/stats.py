"""What the plugin counts: per step from the worker to vLLM's log and its /metrics page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from kvtriage import CompressOutcome

# Name: what it says on the metrics page.
COUNTERS = {
    "compacted": "Compactions of requests",
    "observed": "Decisions in observe mode: nothing was moved",
    "rows_before": "Rows of requests before their compactions or decisions",
    "rows_kept": "Rows kept by them",
    "within_budget": "Requests that were due and had no more rows than they may keep",
    "unavailable": "Compactions missed because there was no kvtriaged",
    "unchanged": "Compactions that kvtriaged refused or did not finish in time; the request was not changed",
    "no_slot": "Compactions put off or missed because all windows of queries were in use (setting slots)",
    "lost": "Requests whose rows were damaged or in doubt: computed anew",
    "step_wait_seconds": "Seconds that steps waited for kvtriaged",
}


@dataclass
class Stats(KVConnectorStats):
    """Sums since the last step, by the names of COUNTERS."""

    data: dict[str, float] = field(default_factory=dict)

    def count(self, name: str) -> None:
        self.add(name, 1)

    def add(self, name: str, amount: float) -> None:
        self.data[name] = self.data.get(name, 0) + amount

    def compacted(self, rows: int, kept: int, outcome: CompressOutcome) -> None:
        self.count("compacted")
        self.add("rows_before", rows)
        self.add("rows_kept", kept)

    def observed(self, rows: int, outcome: CompressOutcome) -> None:
        self.count("observed")
        self.add("rows_before", rows)
        self.add("rows_kept", outcome.one_result().kept)

    def take(self) -> Stats | None:
        """What came since the last call."""
        if not self.data:
            return None
        taken = Stats(self.data)
        self.data = {}
        return taken

    # ---- KVConnectorStats ----------------------------------------------------------------------------

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, amount in other.data.items():
            self.add(name, amount)
        return self

    def reduce(self) -> dict[str, int | float]:
        return {f"kvtriage {name}": round(amount, 3) for name, amount in self.data.items()}

    def is_empty(self) -> bool:
        return not self.data


class PromMetrics(KVConnectorPromMetrics):
    """Counters vllm:kvtriage_NAME, one series per engine."""

    def __init__(self, config: Any, types: Any, labels: list[str], values: dict[int, list[object]]) -> None:
        super().__init__(config, types, labels, values)
        self._counters = {
            name: self._counter_cls(
                name=f"vllm:kvtriage_{name}", documentation=text, labelnames=labels
            )
            for name, text in COUNTERS.items()
        }
        self._values = values

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, amount in transfer_stats_data.items():
            self._counters[name].labels(*self._values[engine_idx]).inc(amount)
