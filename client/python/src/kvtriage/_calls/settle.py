"""What became of a writing call that did not answer OK?

The rules of the crash contract (proto/README.md, section 6), apart from any socket: they are the part that
must not be wrong.
"""

from __future__ import annotations

import enum
import time
from typing import Generic, Protocol, TypeVar

from kvtriage._link import deadline as clock
from kvtriage.errors import KvtriageError

Response = TypeVar("Response")
Response_co = TypeVar("Response_co", covariant=True)

_RESOLVE_PAUSE = 0.005


class Verdict(enum.Enum):
    ANSWERED = 1  # `resolve` got the stored answer: applied
    UNHARMED = 2  # nothing happened, and nothing will
    READ_SLOT = 3  # the slot is CLOSED: it says what happened
    READ_QUIET = 4  # the service is gone or has closed the session: what the slot says is final
    UNKNOWN = 5  # not settled in time: assume the worst, and that it may still be written


class SettleSources(Protocol[Response_co]):
    def resolve(self, deadline: float) -> Response_co:
        """Asks the service what became of the key: the stored answer, or its KvtriageError."""

    def lost(self) -> bool:
        """The session's stream is over."""

    def quiet(self) -> bool:
        """Waits about a millisecond; True when nothing of this session will be stored any more."""


class Settled(Generic[Response]):
    """A verdict, with the answer when it is ANSWERED."""

    def __init__(self, verdict: Verdict, answer: Response | None = None) -> None:
        self.verdict = verdict
        self.answer = answer


def _refuses_to_answer(reason: str) -> bool:
    """Reasons that are about the question itself: being refused to ask is no answer."""
    return reason.startswith("session_") or reason in ("queue_full", "draining", "device_sick")


def _verdict_of(error: KvtriageError) -> Verdict | None:
    """What an error of `resolve` says about the call. None when it says nothing."""
    if not error.from_service or _refuses_to_answer(error.reason):
        return None
    return Verdict.UNHARMED if error.unharmed else Verdict.READ_SLOT


def settle(
    error: KvtriageError | None, sources: SettleSources[Response], deadline: float
) -> Settled[Response]:
    """`error` is how the call ended; None when it was left without waiting for its end."""
    if error is not None and error.unharmed:
        return Settled(Verdict.UNHARMED)
    while not clock.passed(deadline):
        if sources.lost():
            # A job that was running goes on to its end; the ledger is final after it, or after the process.
            if sources.quiet():
                return Settled(Verdict.READ_QUIET)
            continue
        # The slot alone does not do: a job that still scores has not opened it and may move rows later.
        try:
            return Settled(Verdict.ANSWERED, sources.resolve(deadline))
        except KvtriageError as answer:
            verdict = _verdict_of(answer)
        if verdict is not None:
            return Settled(verdict)
        time.sleep(_RESOLVE_PAUSE)
    return Settled(Verdict.UNKNOWN)
