"""One call that may write rows of the caller's caches, from its ledger slot to what became of it."""

from __future__ import annotations

import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kvtriage._calls.settle import Verdict, settle
from kvtriage._link import deadline as clock
from kvtriage._link.ledger import SlotReading, SlotState, Writer
from kvtriage._link.link import Link
from kvtriage._link.register import new_key
from kvtriage._link.retry import with_retry
from kvtriage.cache_description import CacheSpec
from kvtriage.compress import Ints
from kvtriage.compress_result import Outcome
from kvtriage.errors import Code, KvtriageError, local_error
from kvtriage.options import CallOptions

log = logging.getLogger("kvtriage.calls")

Result = TypeVar("Result")


class Writes(enum.Enum):
    NOTHING = 1  # and leaves no trace: after an error there is nothing to ask for
    ELSEWHERE = 2  # the rows of the call stay as they are, but whether it counts must be known
    IN_PLACE = 3  # under a ledger slot


@dataclass(frozen=True, slots=True)
class CallContext:
    """What every call over a link needs. `cache` describes the request's cache."""

    link: Link
    cache: CacheSpec
    options: CallOptions
    settle_ms: int
    quarantine: Callable[[], int]  # makes a ticket for blocks that may still be written

    @property
    def block_slots(self) -> int:
        """Slots of a block of the cache; 1 for a cache without layers, which the service refuses."""
        return max(1, self.cache.layers[0].k.block_slots) if self.cache.layers else 1

    def heads_of(self, layers: Ints) -> tuple[int, ...]:
        """KV heads of each layer of a call; 0 for a layer that the cache does not have: it is refused."""
        all_heads = [layer.kv_heads for layer in self.cache.layers]
        if len(layers) == 0:
            return tuple(all_heads)
        return tuple(all_heads[i] if 0 <= i < len(all_heads) else 0 for i in map(int, layers))


class Question:
    """Asks the service what became of a call, with the call itself under another header. SettleSources."""

    def __init__(self, link: Link, message: Any, answer: type[Any]) -> None:
        self._link, self._answer = link, answer
        self._message = type(message)()
        self._message.CopyFrom(message)
        self._message.header.resolve = True

    def resolve(self, deadline: float) -> Any:
        return self._link.transport.call(self._message, self._answer, deadline)

    def lost(self) -> bool:
        return self._link.lost()

    def quiet(self) -> bool:
        return self._link.quiet(wait_ms=1)


def unreadable(error: KvtriageError | ValueError) -> KvtriageError:
    """Why an answer could not be read."""
    if isinstance(error, KvtriageError):
        return error.with_traceback(None)
    return local_error(Code.INTERNAL, "bad_answer", str(error))


class WritingCall(ABC, Generic[Result]):
    """For one thread and one `run`."""

    def __init__(self, context: CallContext, writes: Writes, answer: type[Any]) -> None:
        self.context = context
        self._link = context.link
        self._writes = writes
        self._answer = answer  # the message of the answer
        self._deadline = clock.after_ms(context.options.deadline_ms)
        self._key = new_key()
        self._slot = 0
        self._message: Any = None
        self._unsettled = False  # a job of ours may still write the slot

    @abstractmethod
    def make(self, slot: int) -> Any:
        """The request, but for its key. KvtriageError when it cannot be one."""

    @abstractmethod
    def answered(self, response: Any) -> Result:
        """The call has been answered OK. KvtriageError when the answer does not fit the request."""

    @abstractmethod
    def ended(self, outcome: Outcome, error: KvtriageError, quarantine: int = 0) -> Result:
        """The same fate for all rows that the call names."""

    @abstractmethod
    def of_slot(self, reading: SlotReading, error: KvtriageError) -> Result:
        """What the ledger slot of a call in place says. Never UNSETTLED."""

    def run(self) -> Result:
        """Never raises for what the service or its death does."""
        if self._writes is not Writes.IN_PLACE:
            return self._send()
        lease = self._link.slots.acquire(self._deadline)
        if lease is None:
            text = "every ledger slot of this session was busy"
            return self.ended(
                Outcome.UNCHANGED, local_error(Code.DEADLINE_EXCEEDED, "ledger_slots_busy", text)
            )
        with lease:
            self._slot = lease.slot
            try:
                return self._send()
            finally:
                if self._unsettled:
                    lease.keep()

    def _send(self) -> Result:
        try:
            self._message = self.make(self._slot)
        except KvtriageError as error:
            return self.ended(Outcome.UNCHANGED, error)
        self._unsettled = True  # until proved otherwise, also when an exception passes through
        self._message.header.idempotency_key = self._key
        try:
            response = with_retry(self.context.options.retry, self._deadline, self._try)
        except KvtriageError as error:
            return self._after_error(error)
        except BaseException:
            # A signal handler raised (KeyboardInterrupt). It passes through, but nothing of the call may
            # run on behind the caller's back.
            self._after_error(None)
            raise
        return self._read(response)

    def _try(self) -> Any:
        return self._link.transport.call(self._message, self._answer, self._deadline)

    def _after_error(self, error: KvtriageError | None) -> Result:
        why = error or local_error(Code.CANCELLED, "interrupted", "the call was interrupted")
        why = why.with_traceback(None)  # an outcome may be kept for long: without our frames
        if self._writes is Writes.NOTHING:
            return self.ended(Outcome.UNCHANGED, why)
        # The call's own deadline may be long past when the connection broke only now.
        limit = max(self._deadline, clock.after_ms(0)) + self.context.settle_ms / 1000
        question = Question(self._link, self._message, self._answer)
        settled = settle(error, question, limit)
        if settled.verdict is Verdict.ANSWERED:
            return self._read(settled.answer)
        if settled.verdict is Verdict.UNHARMED:
            self._unsettled = False
            return self.ended(Outcome.UNCHANGED, why)
        if settled.verdict is Verdict.UNKNOWN:
            return self._doubtful(why)
        quiet = settled.verdict is Verdict.READ_QUIET
        return self._read_slot(why, Writer.QUIET if quiet else Writer.ACTIVE)

    def _read(self, response: Any) -> Result:
        try:
            result = self.answered(response)
        except (KvtriageError, ValueError) as error:  # ValueError: an enum value newer than we are
            # An answer that cannot be read: the call was applied all the same, the ledger has the lengths.
            log.error("kvtriaged sent an answer that does not fit its request: %s", error)
            return self._read_slot(unreadable(error), Writer.ACTIVE)
        self._unsettled = False
        return result

    def _read_slot(self, error: KvtriageError, writer: Writer) -> Result:
        # A copy leaves the source alone whatever happens; its destination is garbage nobody points at.
        if self._writes is not Writes.IN_PLACE:
            return self.ended(Outcome.UNCHANGED, error)
        reading = self._link.ledger.read(self._slot, self._key, writer)
        if reading.state is SlotState.UNSETTLED:
            return self._doubtful(error)
        self._unsettled = False
        return self.of_slot(reading, error)

    def _doubtful(self, error: KvtriageError) -> Result:
        """Not settled in time: the worst is assumed, and the blocks must not be reused yet."""
        log.error("the fate of a call could not be settled; its blocks are quarantined: %s", error)
        in_place = self._writes is Writes.IN_PLACE
        outcome = Outcome.DAMAGED if in_place else Outcome.UNCHANGED
        return self.ended(outcome, error, self.context.quarantine())
