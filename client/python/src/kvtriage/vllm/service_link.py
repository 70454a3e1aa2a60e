"""The worker's way to kvtriaged: there or not, it never stops a step for longer than the settings say."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kvtriage import (
    Cache,
    CallOptions,
    Code,
    CompressOutcome,
    CompressRequest,
    KvtriageError,
    Outcome,
    Region,
    Registration,
    SelectOnly,
    SequenceFate,
    Session,
    connect,
)
from kvtriage.vllm.settings import Settings
from kvtriage.vllm.versions import UnsupportedEngine

log = logging.getLogger("kvtriage.vllm")

_CALLS_AT_ONCE = 4  # as many as a session has ledger slots
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_CLIENT = "kvtriage-vllm"
# Of attaching: a service that is not there yet. Anything else is a mistake of the configuration.
_NOT_THERE = ("socket_missing", "not_kvtriage", "fd_socket_missing", "fd_socket_silent", "not_attached")


@dataclass(frozen=True, slots=True)
class Lent:
    """A session and what it has lent."""

    session: Session
    regions: tuple[Region, ...]
    cache: Cache


class ServiceLink:
    """Used by the worker's thread; attaching and closing happen in the background."""

    def __init__(self, settings: Settings, registration: Registration) -> None:
        """Attaches. Without a service: goes on, and tries again in the background.

        UnsupportedEngine for a service that will never let us in: another version, another user's.
        """
        self._settings = settings
        self._registration = registration
        self._calls = ThreadPoolExecutor(_CALLS_AT_ONCE, thread_name_prefix="kvtriage-call")
        self._chores = ThreadPoolExecutor(1, thread_name_prefix="kvtriage-chore")
        self._stop = threading.Event()
        self._lent: Lent | None = None
        try:
            self._lent = self._attach()
        except KvtriageError as error:
            if error.reason not in _NOT_THERE:
                raise UnsupportedEngine(f"kvtriage: endpoint={settings.endpoint!r}: {error}") from error
            log.error("no kvtriaged (%s): requests run uncompressed until it is there", error)
            self._attach_in_background()

    @property
    def lent(self) -> Lent | None:
        """None while there is no service."""
        lent = self._lent
        return lent if lent is not None and lent.session.alive else None

    def compress(self, lent: Lent, requests: Seq[CompressRequest]) -> list[CompressOutcome]:
        """All at once. Returns after at most step_ms + resolve_ms, and a little.

        A session whose service did not even say what became of a call is given up: the next steps do not
        wait for it.
        """
        begin = time.monotonic()

        def call(request: CompressRequest) -> CompressOutcome:
            left = self._settings.step_ms - int(1000 * (time.monotonic() - begin))
            if left <= 0:
                return _not_sent(request)
            return lent.session.compress(request, CallOptions(left, retry=False))

        outcomes = list(self._calls.map(call, requests))
        if any(_unanswered(request, outcome) for request, outcome in zip(requests, outcomes)):
            self._give_up(lent)
        return outcomes

    def release(self, sequence_ids: Seq[int]) -> None:
        """Forgets sequences, in the background: no call about them is open."""
        lent = self.lent
        if sequence_ids and lent is not None:
            self._chores.submit(_release, lent.session, list(sequence_ids))

    def close(self) -> None:
        self._stop.set()
        self._calls.shutdown(wait=False)
        lent, self._lent = self._lent, None
        if lent is not None:
            lent.session.close()
        self._chores.shutdown(wait=False)

    def _attach(self) -> Lent:
        settings = self._settings
        session = connect(
            settings.endpoint,
            client=_CLIENT,
            server_uid=settings.server_uid,
            settle_ms=settings.resolve_ms,
        )
        try:
            registered = session.register(self._registration)
        except BaseException:
            session.close()
            raise
        return Lent(session, registered.regions, registered.caches[0])

    def _attach_in_background(self) -> None:
        threading.Thread(target=self._attach_again, name="kvtriage-attach", daemon=True).start()

    def _attach_again(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.wait(pause):
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                lent = self._attach()
            except KvtriageError as error:
                log.debug("attaching: %s", error)
                continue
            except Exception:  # whatever it is, the engine goes on without us
                log.exception("attaching to kvtriaged")
                continue
            self._lent = lent
            log.warning("attached to kvtriaged: requests are compacted again")
            return

    def _give_up(self, lent: Lent) -> None:
        """Closes a session that does not answer, and attaches anew, both in the background."""
        if self._lent is not lent:
            return
        self._lent = None
        log.error("kvtriaged does not answer: the session is given up, requests run uncompressed meanwhile")
        self._chores.submit(lent.session.close)
        self._attach_in_background()


def _not_sent(request: CompressRequest) -> CompressOutcome:
    """The step's time was used up by the calls before it."""
    error = KvtriageError(Code.DEADLINE_EXCEEDED, "step_over", "no time was left in this step", unharmed=True)
    fates = tuple(SequenceFate(sequence.sequence_id) for sequence in request.sequences)
    return CompressOutcome(Outcome.UNCHANGED, error, None, fates)


def _unanswered(request: CompressRequest, outcome: CompressOutcome) -> bool:
    """The service said neither what it did nor, when asked, what it had done."""
    if outcome.quarantine:
        return True
    # Of a call that writes nothing, nobody asks: the deadline is gRPC's own.
    error = outcome.error
    cut_off = error is not None and error.code is Code.DEADLINE_EXCEEDED and not error.reason
    return cut_off and isinstance(request.act, SelectOnly)


def _release(session: Session, sequence_ids: list[int]) -> None:
    try:
        session.release_sequences(sequence_ids)
    except KvtriageError as error:
        log.debug("releasing sequences: %s", error)  # a lost session has forgotten them already

