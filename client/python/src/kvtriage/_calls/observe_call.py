"""One Observe or Rewind over one link, to its settled end."""

from __future__ import annotations

from kvtriage._calls.fates import fates_of_observed, outcome_of, step_fates_all, step_fates_of_slot
from kvtriage._calls.settle import settle
from kvtriage._calls.writing_call import CallContext, Question, Writes, WritingCall
from kvtriage._link import deadline as clock
from kvtriage._link.ledger import SlotReading
from kvtriage._link.register import new_key
from kvtriage._link.retry import with_retry
from kvtriage._messages.observe import may_evict, observe_message, observe_result_of, rewind_message
from kvtriage.compress import InPlace
from kvtriage.compress_result import Outcome
from kvtriage.errors import KvtriageError
from kvtriage.observe import ObserveOutcome, ObserveRequest, RewindRequest, RewindResult
from kvtriage.v1 import triage_pb2


def observe_without_effect(
    request: ObserveRequest, outcome: Outcome, error: KvtriageError, quarantine: int = 0
) -> ObserveOutcome:
    """Nothing was sent, the service refused, or all steps share a fate."""
    each = Outcome.UNCHANGED if outcome is Outcome.UNAVAILABLE else outcome
    return ObserveOutcome(outcome, error, None, step_fates_all(request.steps, each), quarantine)


def _writes_of(request: ObserveRequest) -> Writes:
    """Even a call that writes no rows is settled: the next one depends on whether this one counts."""
    in_place = isinstance(request.act, InPlace) and may_evict(request)
    return Writes.IN_PLACE if in_place else Writes.ELSEWHERE


class ObserveCall(WritingCall[ObserveOutcome]):
    def __init__(self, context: CallContext, request: ObserveRequest) -> None:
        super().__init__(context, _writes_of(request), triage_pb2.ObserveResponse)
        self._request = request
        self._heads = context.heads_of(())

    def make(self, slot: int) -> triage_pb2.ObserveRequest:
        return observe_message(self._request, slot, self.context.link.ids)

    def answered(self, response: triage_pb2.ObserveResponse) -> ObserveOutcome:
        result = observe_result_of(response, self._request, self._heads)
        return ObserveOutcome(Outcome.APPLIED, None, result, fates_of_observed(result, self._request.steps))

    def ended(self, outcome: Outcome, error: KvtriageError, quarantine: int = 0) -> ObserveOutcome:
        return observe_without_effect(self._request, outcome, error, quarantine)

    def of_slot(self, reading: SlotReading, error: KvtriageError) -> ObserveOutcome:
        steps, layers = self._request.steps, len(self._heads)
        fates = step_fates_of_slot(reading, steps, layers, self.context.block_slots)
        return ObserveOutcome(outcome_of(fates), error, None, fates)


def run_rewind(context: CallContext, request: RewindRequest) -> RewindResult:
    """An error: nothing was forgotten, or the session, and with it the running scores, is gone."""
    message = rewind_message(request)
    message.header.idempotency_key = new_key()
    deadline = clock.after_ms(context.options.deadline_ms)
    transport, answer = context.link.transport, triage_pb2.RewindResponse
    try:
        response = with_retry(
            context.options.retry, deadline, lambda: transport.call(message, answer, deadline)
        )
    except KvtriageError as error:
        limit = max(deadline, clock.after_ms(0)) + context.settle_ms / 1000
        settled = settle(error, Question(context.link, message, answer), limit)
        if settled.answer is None:
            raise
        response = settled.answer
    return RewindResult(response.draft_rows, response.physical_len)
