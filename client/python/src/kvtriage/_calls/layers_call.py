"""One CompressLayers, from its first message until it is settled: what a LayerStream is made of."""

from __future__ import annotations

import copy
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc

from kvtriage._calls.compress_call import without_effect
from kvtriage._calls.fates import fates_of_answer, fates_of_slot, outcome_of
from kvtriage._calls.settle import Verdict, settle
from kvtriage._calls.writing_call import CallContext, Question, unreadable
from kvtriage._link import deadline as clock
from kvtriage._link.error_details import from_grpc
from kvtriage._link.ledger import SlotReading, SlotState, Writer
from kvtriage._link.ledger_slots import Lease
from kvtriage._link.register import new_key
from kvtriage._link.retry import with_retry
from kvtriage._messages.build import build
from kvtriage._messages.compress import compress_message, compress_result_of
from kvtriage._messages.policy import parts_of
from kvtriage.compress import CompressRequest, InPlace, SelectOnly
from kvtriage.compress_result import CompressOutcome, Outcome
from kvtriage.errors import Code, KvtriageError, local_error
from kvtriage.layer_stream import LayerResult
from kvtriage.policy import PolicyParts
from kvtriage.v1 import triage_pb2, types_pb2

_SLOT_POLL = 0.001

_Outgoing = queue.SimpleQueue[triage_pb2.CompressLayersRequest | None]


def _requests(outgoing: _Outgoing) -> Iterator[triage_pb2.CompressLayersRequest]:
    while (request := outgoing.get()) is not None:
        yield request


def _stream_over() -> KvtriageError:
    return local_error(Code.UNAVAILABLE, "stream_over", "the stream has ended; close says why")


class LayersCall:
    def __init__(self, context: CallContext, request: CompressRequest) -> None:
        self._context = context
        self._link = context.link
        self._request = copy.copy(request)
        self._deadline = clock.after_ms(context.options.deadline_ms)
        self._heads = context.heads_of(request.layers)
        self._in_place = isinstance(request.act, InPlace)
        self._lease: Lease | None = None  # of an in-place call
        self._outgoing: _Outgoing = queue.SimpleQueue()
        self._call: Any = None
        self._job_id = 0
        self.policy = PolicyParts()
        self.settled = False
        # Of whoever reads.
        self._whole = triage_pb2.CompressResponse()
        self._finished = False
        self._end: KvtriageError | None = None  # how the stream ended; None: OK
        # Keys of layers that were handed over and have no answer.
        self._unanswered: dict[int, bytes] = {}
        self._lock = threading.Lock()  # over `_unanswered`

    # ---- LayerStream ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Once, first: sends the first message and waits for the answer. An error leaves nothing behind."""
        slot = 0
        if self._in_place:
            self._lease = self._link.slots.acquire(self._deadline)
            if self._lease is None:
                text = "every ledger slot of this session was busy"
                raise local_error(Code.DEADLINE_EXCEEDED, "ledger_slots_busy", text)
            slot = self._lease.slot
        try:
            message = compress_message(self._request, slot, self._link.ids)
            opening = triage_pb2.CompressLayersRequest(open=message)
            with_retry(self._context.options.retry, self._deadline, lambda: self._try_open(opening))
        except BaseException:
            self._give_slot_back()
            raise

    def ready(self, layer: int) -> None:
        key = new_key()
        header = types_pb2.RequestHeader(idempotency_key=key)
        handed = build(triage_pb2.CompressLayersRequest.LayerReady, header=header, layer=layer)
        if self._finished or not self._call.is_active():
            raise _stream_over()
        with self._lock:
            self._unanswered[layer] = key
        self._outgoing.put(triage_pb2.CompressLayersRequest(layer=handed))

    def next(self) -> LayerResult:
        response = self._read()
        if response is None:
            raise self._end or _stream_over()
        if not response.HasField("layer"):
            raise _stream_over()
        done = response.layer
        answer = triage_pb2.CompressResponse(header=done.header, results=done.results)
        heads = self._context.heads_of([done.layer])
        return LayerResult(done.layer, compress_result_of(answer, self._request, heads))

    def close(self) -> CompressOutcome:
        self._outgoing.put(None)
        return self._finish()

    def cancel(self) -> CompressOutcome:
        self._call.cancel()
        return self._finish()

    # ---- the stream ------------------------------------------------------------------------------------

    def _try_open(self, opening: triage_pb2.CompressLayersRequest) -> None:
        self._outgoing = queue.SimpleQueue()
        self._outgoing.put(opening)
        self._finished, self._end = False, None
        self._call = self._link.transport.compress_layers(_requests(self._outgoing), self._deadline)
        response = self._read()
        if response is not None and response.HasField("opened"):
            self._job_id = response.opened.header.job_id
            self.policy = parts_of(response.opened.policy)
            return
        if response is not None:
            self._call.cancel()
        while self._read() is not None:
            pass
        raise self._end or local_error(Code.INTERNAL, "bad_answer", "the stream ended without a word")

    def _read(self) -> triage_pb2.CompressLayersResponse | None:
        """The next message; None when the stream is over."""
        if self._finished:
            return None
        try:
            response: triage_pb2.CompressLayersResponse = next(self._call)
        except StopIteration:
            self._end_with(None)
            return None
        except grpc.RpcError as error:
            self._end_with(from_grpc(error))
            return None
        if response.HasField("closed"):
            self._whole = response.closed
        if response.HasField("layer"):
            with self._lock:
                self._unanswered.pop(response.layer.layer, None)
        return response

    def _end_with(self, error: KvtriageError | None) -> None:
        self._finished, self._end = True, error
        self._outgoing.put(None)  # ends gRPC's thread that waits for requests

    # ---- what became of the cache --------------------------------------------------------------------------

    def _finish(self) -> CompressOutcome:
        while self._read() is not None:
            pass
        outcome = self._answered() if self._end is None else self._after_error(self._end)
        if outcome.quarantine == 0:
            self._give_slot_back()
        elif self._lease is not None:
            self._lease.keep()
        self.settled = True
        return outcome

    def _give_slot_back(self) -> None:
        if self._lease is not None:
            self._lease.release()

    def _answered(self) -> CompressOutcome:
        try:
            result = compress_result_of(self._whole, self._request, self._heads)
        except (KvtriageError, ValueError) as error:
            # Applied, whatever the answer looks like: the ledger has the lengths.
            return self._read_slot(unreadable(error), Writer.ACTIVE)
        return CompressOutcome(Outcome.APPLIED, None, result, fates_of_answer(result))

    def _after_error(self, error: KvtriageError) -> CompressOutcome:
        if (error.from_service and error.unharmed) or isinstance(self._request.act, SelectOnly):
            return without_effect(self._request, Outcome.UNCHANGED, error)
        # The stream's own deadline may be long past when the connection broke only now.
        limit = max(self._deadline, clock.after_ms(0)) + self._context.settle_ms / 1000
        return self._wait_for_slot(error, limit) if self._in_place else self._wait_for_copies(error, limit)

    def _wait_for_slot(self, error: KvtriageError, limit: float) -> CompressOutcome:
        """The slot is open from before the first layer until the stream's last layer is over."""
        while not clock.passed(limit):
            if self._link.lost():
                if self._link.quiet(wait_ms=1):
                    return self._read_slot(error, Writer.QUIET)
                continue
            reading = self._reading(Writer.ACTIVE)
            if reading.state is not SlotState.UNSETTLED:
                return self._of_slot(error, reading)
            time.sleep(_SLOT_POLL)
        return self._unsettled(error)

    def _wait_for_copies(self, error: KvtriageError, limit: float) -> CompressOutcome:
        """The sources are whole whatever happened; the destination is written until every layer that has no
        answer is known to be over."""
        with self._lock:
            open_keys = list(self._unanswered.values())
        for key in open_keys:
            message = triage_pb2.CompressRequest(header=types_pb2.RequestHeader(idempotency_key=key))
            question = Question(self._link, message, triage_pb2.CompressResponse)
            if settle(None, question, limit).verdict is Verdict.UNKNOWN:
                return self._unsettled(error)
        return without_effect(self._request, Outcome.UNCHANGED, error)

    def _reading(self, writer: Writer) -> SlotReading:
        assert self._lease is not None  # only of in-place calls
        return self._link.ledger.read_stream(self._lease.slot, self._job_id, writer)

    def _read_slot(self, error: KvtriageError, writer: Writer) -> CompressOutcome:
        if not self._in_place:
            return without_effect(self._request, Outcome.UNCHANGED, error)
        return self._of_slot(error, self._reading(writer))

    def _of_slot(self, error: KvtriageError, reading: SlotReading) -> CompressOutcome:
        if reading.state is SlotState.UNSETTLED:
            return self._unsettled(error)
        layers = len(self._heads)
        fates = fates_of_slot(reading, self._request.sequences, layers, self._context.block_slots)
        return CompressOutcome(outcome_of(fates), error, None, fates)

    def _unsettled(self, error: KvtriageError) -> CompressOutcome:
        outcome = Outcome.DAMAGED if self._in_place else Outcome.UNCHANGED
        return without_effect(self._request, outcome, error, self._context.quarantine())
