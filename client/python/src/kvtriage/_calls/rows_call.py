"""One Rerotate or Fuse over one link, to its settled end: rows of one sequence are overwritten where they
stand, or copied."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from kvtriage._calls.fates import fates_of_slot
from kvtriage._calls.writing_call import CallContext, Writes, WritingCall
from kvtriage._link.ledger import SlotReading
from kvtriage._messages.blend import fuse_message, rerotate_message
from kvtriage.blend import FuseRequest, RerotateRequest, RowsOutcome
from kvtriage.compress import InPlace
from kvtriage.compress_result import Outcome
from kvtriage.errors import KvtriageError
from kvtriage.v1 import blend_pb2


class _RowsCall(WritingCall[RowsOutcome]):
    def __init__(
        self,
        context: CallContext,
        request: RerotateRequest | FuseRequest,
        writes: Writes,
        answer: type[Any],
    ) -> None:
        super().__init__(context, writes, answer)
        self._sequence = request.sequence
        self._layers = len(context.heads_of(request.layers))

    @abstractmethod
    def rows_of(self, response: Any) -> int:
        """Rows that were written."""

    def answered(self, response: Any) -> RowsOutcome:
        return RowsOutcome(Outcome.APPLIED, None, response.kv_revision, self.rows_of(response))

    def ended(self, outcome: Outcome, error: KvtriageError, quarantine: int = 0) -> RowsOutcome:
        return RowsOutcome(outcome, error, quarantine=quarantine)

    def of_slot(self, reading: SlotReading, error: KvtriageError) -> RowsOutcome:
        (fate,) = fates_of_slot(reading, [self._sequence], self._layers, self.context.block_slots)
        return RowsOutcome(fate.outcome, error, fate.kv_revision)


class RerotateCall(_RowsCall):
    def __init__(self, context: CallContext, request: RerotateRequest) -> None:
        writes = Writes.IN_PLACE if isinstance(request.act, InPlace) else Writes.ELSEWHERE
        super().__init__(context, request, writes, blend_pb2.RerotateResponse)
        self._request = request

    def make(self, slot: int) -> blend_pb2.RerotateRequest:
        return rerotate_message(self._request, slot, self.context.link.ids)

    def rows_of(self, response: blend_pb2.RerotateResponse) -> int:
        return response.rows_rotated


class FuseCall(_RowsCall):
    def __init__(self, context: CallContext, request: FuseRequest) -> None:
        super().__init__(context, request, Writes.IN_PLACE, blend_pb2.FuseResponse)
        self._request = request

    def make(self, slot: int) -> blend_pb2.FuseRequest:
        return fuse_message(self._request, slot, self.context.link.ids)

    def rows_of(self, response: blend_pb2.FuseResponse) -> int:
        return response.rows_written
