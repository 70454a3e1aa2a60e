"""One Compress over one link, to its settled end."""

from __future__ import annotations

from kvtriage._calls.fates import fates_all, fates_of_answer, fates_of_slot, outcome_of
from kvtriage._calls.writing_call import CallContext, Writes, WritingCall
from kvtriage._link.ledger import SlotReading
from kvtriage._messages.compress import compress_message, compress_result_of
from kvtriage.compress import CompressRequest, InPlace, SelectOnly
from kvtriage.compress_result import CompressOutcome, Outcome
from kvtriage.errors import KvtriageError
from kvtriage.v1 import triage_pb2


def without_effect(
    request: CompressRequest, outcome: Outcome, error: KvtriageError, quarantine: int = 0
) -> CompressOutcome:
    """Nothing was sent, the service refused, or all sequences share a fate."""
    each = Outcome.UNCHANGED if outcome is Outcome.UNAVAILABLE else outcome
    return CompressOutcome(outcome, error, None, fates_all(request.sequences, each), quarantine)


def _writes_of(request: CompressRequest) -> Writes:
    if isinstance(request.act, InPlace):
        return Writes.IN_PLACE
    return Writes.NOTHING if isinstance(request.act, SelectOnly) else Writes.ELSEWHERE


class CompressCall(WritingCall[CompressOutcome]):
    def __init__(self, context: CallContext, request: CompressRequest) -> None:
        super().__init__(context, _writes_of(request), triage_pb2.CompressResponse)
        self._request = request
        self._heads = context.heads_of(request.layers)

    def make(self, slot: int) -> triage_pb2.CompressRequest:
        return compress_message(self._request, slot, self.context.link.ids)

    def answered(self, response: triage_pb2.CompressResponse) -> CompressOutcome:
        result = compress_result_of(response, self._request, self._heads)
        return CompressOutcome(Outcome.APPLIED, None, result, fates_of_answer(result))

    def ended(self, outcome: Outcome, error: KvtriageError, quarantine: int = 0) -> CompressOutcome:
        return without_effect(self._request, outcome, error, quarantine)

    def of_slot(self, reading: SlotReading, error: KvtriageError) -> CompressOutcome:
        sequences, layers = self._request.sequences, len(self._heads)
        fates = fates_of_slot(reading, sequences, layers, self.context.block_slots)
        return CompressOutcome(outcome_of(fates), error, None, fates)
