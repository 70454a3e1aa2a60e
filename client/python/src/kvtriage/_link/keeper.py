"""Keeps a session attached: a thread that waits for the lease to end and then attaches and registers anew
until it works."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Iterator

from kvtriage._link import deadline as clock
from kvtriage._link.link import Link
from kvtriage._link.memory_book import MemoryBook
from kvtriage._link.register import register_all
from kvtriage.errors import Code, KvtriageError, local_error
from kvtriage.options import ConnectOptions
from kvtriage.session_state import SessionState
from kvtriage.v1 import session_pb2

log = logging.getLogger("kvtriage.session")

# The longest pause leaves time to attach and register within a second of the service's return.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.8
_REGISTER_AGAIN_MS = 5000
_GOODBYE_SECONDS = 1.0

# Owners of memory that a service may still have mapped when their session ended: kept in reach for good.
_abandoned_owners: list[object] = []


class _Notices:
    """What the service announced in the life of one link."""

    draining = False
    device_sick = False

    def take(self, notice: session_pb2.Notice) -> None:
        log.warning("notice of kvtriaged: %s %s", session_pb2.Notice.Kind.Name(notice.kind), notice.reason)
        if notice.kind == session_pb2.Notice.KIND_DRAINING:
            self.draining = True
        if notice.kind == session_pb2.Notice.KIND_DEVICE_SICK:
            self.device_sick = True


class Keeper:
    """Thread-safe. Belongs to the process that made it: a forked child must not touch it."""

    def __init__(self, options: ConnectOptions) -> None:
        """The first attachment, on the caller's thread; then the thread starts."""
        self._options = options
        self._pid = os.getpid()
        self.book = MemoryBook()
        self._registering = threading.Lock()  # taken before `_changed`
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._abandoned = False
        self._link: Link | None = None
        self._notices = _Notices()
        self._lost_links: list[Link] = []  # perhaps not quiet yet
        self._quarantined: dict[int, Link] = {}
        self._next_ticket = 1
        self._attachments = 0
        self._last_error: KvtriageError | None = None
        self._attach()
        self._thread = threading.Thread(target=self._run, name="kvtriage-keeper", daemon=True)
        self._thread.start()
        _open_keepers.add(self)

    def forked(self) -> bool:
        """In a forked child gRPC's threads do not exist and any lock may be held."""
        return os.getpid() != self._pid

    def current(self) -> Link:
        """The link, while it is alive: an error at once otherwise.

        FAILED_PRECONDITION (forked, closed), UNAVAILABLE (not_attached).
        """
        if self.forked():
            text = "this session belongs to the parent process"
            raise local_error(Code.FAILED_PRECONDITION, "forked", text)
        if self._stop.is_set():
            raise local_error(Code.FAILED_PRECONDITION, "closed", "the session is closed")
        link = self._link
        if link is None or link.lost():
            last = self._last_error
            text = f"; the last try: {last}" if last else ""
            raise local_error(Code.UNAVAILABLE, "not_attached", f"not attached to a kvtriaged{text}")
        return link

    @contextlib.contextmanager
    def registering(self, deadline: float) -> Iterator[None]:
        """Held by whoever changes what is lent, over the calls that do it: so that what a new attachment
        registers and what the book holds cannot drift apart. DEADLINE_EXCEEDED (registration_busy)."""
        if not self._registering.acquire(timeout=clock.seconds_left(deadline)):
            text = "another registration, or attaching anew, is not through"
            raise local_error(Code.DEADLINE_EXCEEDED, "registration_busy", text)
        try:
            yield
        finally:
            self._registering.release()

    def wait_alive(self, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(self._alive, timeout)

    def state(self) -> SessionState:
        with self._changed:
            link = self._link
            if link is None:
                return SessionState(attachments=self._attachments, last_error=self._last_error)
            return SessionState(
                alive=self._alive(),
                epoch=link.epoch,
                session_id=link.session_id,
                server_pid=link.server.pid,
                server_uid=link.server.uid,
                server_gid=link.server.gid,
                draining=self._notices.draining,
                device_sick=self._notices.device_sick,
                attachments=self._attachments,
                last_error=self._last_error,
            )

    def wait_lost_quiet(self, deadline: float) -> bool:
        """Waits until no session that was lost can store anything any more."""
        with self._changed:
            links = list(self._lost_links)
            if self._link is not None and self._link.lost():
                links.append(self._link)
        return all(link.wait_quiet(deadline) for link in links)

    def quarantine(self, link: Link) -> int:
        """Remembers the link of blocks that must not be reused yet; the ticket is never 0."""
        with self._changed:
            ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
            self._quarantined[ticket] = link
            return ticket

    def quiet(self, ticket: int) -> bool:
        with self._changed:
            link = self._quarantined.get(ticket)
        if link is None or link.quiet():
            with self._changed:
                self._quarantined.pop(ticket, None)
            return True
        return False

    def close(self) -> None:
        """Stops and says goodbye; waits at most a second for the service to agree. Again: nothing."""
        if self.forked() or self._stop.is_set():
            return
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if self._link is not None and not self._link.lost():
            self._link.say_goodbye()
            if not self._link.wait_done(_GOODBYE_SECONDS):
                log.warning("kvtriaged did not answer a goodbye within %g s", _GOODBYE_SECONDS)
        self._let_go()

    def abandon(self) -> None:
        """The session was dropped without close(). Called by a finalizer, so it takes no lock."""
        if self.forked() or self._stop.is_set():
            return
        self._abandoned = True
        link = self._link
        if link is not None:
            link.say_goodbye()  # the end of the stream wakes the thread, which does the rest

    def keep_owners(self) -> None:
        """Gives the owners of lent memory up for good: it stays as it is until the process ends."""
        owners = self.book.owners()
        if owners:
            log.error("%d lent allocations are never freed: no answer that they were closed", len(owners))
        _abandoned_owners.extend(owners)

    def _let_go(self) -> None:
        """Closes the channels. Cut-off calls settle by the ledgers, which stay readable."""
        with self._changed:
            links = [*self._lost_links, *([self._link] if self._link else [])]
        for link in links:
            link.close()

    def _alive(self) -> bool:
        return self._link is not None and not self._link.lost() and not self._stop.is_set()

    def _on_lost(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _attach(self) -> None:
        notices = _Notices()
        link = Link(self._options, notices.take, self._on_lost, self._stop)
        try:
            with self._registering:
                register_all(link, self.book.all(), clock.after_ms(_REGISTER_AGAIN_MS))
                self._take(link, notices)
        except BaseException:
            link.close()
            raise

    def _take(self, link: Link, notices: _Notices) -> None:
        with self._changed:
            old = self._link
            self._lost_links = [lost for lost in self._lost_links if not lost.quiet()]
            if old is not None:
                self._lost_links.append(old)
            self._link, self._notices = link, notices
            self._attachments += 1
            self._last_error = None
            self._changed.notify_all()
        if old is not None:
            old.close()

    def _run(self) -> None:
        while self._wait_lost():
            log.warning("kvtriaged is gone: attaching anew in the background")
            pause = _FIRST_PAUSE
            while not self._stop.wait(pause) and not self._abandoned and not self._try_attach():
                pause = min(2 * pause, _LONGEST_PAUSE)
        if self._abandoned:
            log.warning("a session was dropped without close()")
            self.keep_owners()
            self._let_go()

    def _try_attach(self) -> bool:
        try:
            self._attach()
        except KvtriageError as error:
            log.debug("attaching anew: %s", error)
            error.__cause__ = error.__context__ = None  # frames, and with them the link that failed
            self._last_error = error.with_traceback(None)
            return False
        except Exception as error:  # whatever it is, the engine goes on without us
            log.exception("attaching anew")
            self._last_error = local_error(Code.INTERNAL, "bad_answer", repr(error))
            return False
        log.warning("attached anew to kvtriaged, everything is registered again")
        return True

    def _wait_lost(self) -> bool:
        """False when stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stop.is_set() or self._link is None or self._link.lost())
        return not self._stop.is_set() and not self._abandoned


_open_keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Clean ends for sessions that are open when the process exits."""
    for keeper in list(_open_keepers):
        keeper.close()
