"""What the scheduler tells the worker about a step, and the worker the scheduler, in that same step."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)


@dataclass
class StepNews(KVConnectorMetadata):
    """Comes with every step, also with those that compute nothing."""

    finished: set[str]
    preempted: set[str]  # or resumed after that: their rows are gone


@dataclass(frozen=True, slots=True)
class Cut:
    """A request was compacted."""

    dropped: int  # tokens without a row, since its start
    blocks: int  # that it keeps: the first ones of its table


@dataclass(frozen=True, slots=True)
class Lost:
    """Rows of a request are damaged, or may still be written: it is computed anew in other blocks."""

    block_ids: tuple[int, ...]
    quarantine: int  # 0: the blocks may be reused at once; else not before this number is in `quiet`


@dataclass
class StepReport(KVConnectorWorkerMetadata):
    cut: dict[str, Cut] = field(default_factory=dict)
    lost: dict[str, Lost] = field(default_factory=dict)
    quiet: list[int] = field(default_factory=list)  # quarantines that are over

    def __bool__(self) -> bool:
        return bool(self.cut or self.lost or self.quiet)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        raise NotImplementedError("several ranks are refused at start (refusals.py)")
