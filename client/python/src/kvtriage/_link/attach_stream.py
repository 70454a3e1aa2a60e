"""The Attach stream: the session lives exactly as long as it does."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator

import grpc

from kvtriage._link import deadline as clock
from kvtriage._link.error_details import from_grpc
from kvtriage._link.transport import Transport
from kvtriage.errors import Code, KvtriageError, local_error
from kvtriage.v1 import session_pb2

log = logging.getLogger("kvtriage.session")


def _requests(
    outgoing: queue.SimpleQueue[session_pb2.AttachRequest | None],
) -> Iterator[session_pb2.AttachRequest]:
    while (request := outgoing.get()) is not None:
        yield request


class AttachStream:
    """Says Hello, takes the Welcome, then reads notices on a thread of its own until the stream ends.

    Thread-safe. `on_notice` and `on_lost` are called on that thread; no event comes after `on_lost`.
    """

    def __init__(
        self,
        transport: Transport,
        hello: session_pb2.AttachRequest.Hello,
        on_notice: Callable[[session_pb2.Notice], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._on_notice = on_notice
        self._on_lost = on_lost
        self._outgoing: queue.SimpleQueue[session_pb2.AttachRequest | None] = queue.SimpleQueue()
        self._outgoing.put(session_pb2.AttachRequest(hello=hello))
        self._welcomed = threading.Event()  # or over before it was
        self._done = threading.Event()
        self._error: KvtriageError | None = None
        self.lost = False
        self.welcome = session_pb2.Welcome()
        self._call = transport.attach(_requests(self._outgoing))
        self._reader = threading.Thread(target=self._read, name="kvtriage-attach", daemon=True)
        self._reader.start()

    def wait_welcome(self, deadline: float, stop: threading.Event) -> None:
        """Returns once the Welcome is there. KvtriageError otherwise, also soon after `stop` is set."""
        while not self._welcomed.wait(min(0.02, clock.seconds_left(deadline))):
            if stop.is_set() or clock.passed(deadline):
                break
        if self.welcome.session_token and not self.lost:
            return
        if self._error is not None:
            raise self._error
        text = "the service closed the stream without a word" if self.lost else "no Welcome in time"
        raise local_error(Code.UNAVAILABLE, "not_kvtriage", text)

    def say_goodbye(self) -> None:
        """Ends the session cleanly, without waiting. Safe in a finalizer: SimpleQueue.put takes no lock."""
        self._outgoing.put(session_pb2.AttachRequest(goodbye=session_pb2.AttachRequest.Goodbye()))
        self._outgoing.put(None)

    def wait_done(self, timeout: float) -> bool:
        """Whether the stream has ended within `timeout` seconds."""
        return self._done.wait(timeout)

    def cancel(self) -> None:
        self._call.cancel()
        self._outgoing.put(None)

    def _read(self) -> None:
        try:
            for response in self._call:
                self._take(response)
        except grpc.RpcError as error:
            self._error = from_grpc(error)
        except Exception as error:
            log.exception("reading the attach stream")
            self._error = local_error(Code.INTERNAL, "bad_answer", str(error))
            self._call.cancel()
        self.lost = True
        self._outgoing.put(None)  # ends gRPC's thread that waits for requests
        self._welcomed.set()
        self._done.set()
        self._on_lost()

    def _take(self, response: session_pb2.AttachResponse) -> None:
        kind = response.WhichOneof("message")
        if kind == "welcome" and not self._welcomed.is_set():
            self.welcome = response.welcome
            self._welcomed.set()
        elif kind == "notice":
            self._on_notice(response.notice)
