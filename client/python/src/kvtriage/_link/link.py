"""One attachment to one life of the service: the lease, the token, the ledger, the ids.

Never revived; a lost one is replaced by a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kvtriage._link import deadline as clock
from kvtriage._link.attach_stream import AttachStream
from kvtriage._link.endpoint import check_listening, sibling_path, socket_path
from kvtriage._link.fd_socket import FdSocket, ServerProcess
from kvtriage._link.ledger import Ledger
from kvtriage._link.ledger_slots import LedgerSlots
from kvtriage._link.memory_ids import MemoryIds
from kvtriage._link.server_life import ServerLife
from kvtriage._link.transport import Transport
from kvtriage._messages.build import build
from kvtriage.errors import Code, KvtriageError, local_error
from kvtriage.options import ConnectOptions
from kvtriage.v1 import session_pb2

_API_REVISION = 1
_FD_SOCKET_SECONDS = 2.0


def _hello(options: ConnectOptions) -> session_pb2.AttachRequest.Hello:
    return build(
        session_pb2.AttachRequest.Hello,
        min_api_revision=_API_REVISION,
        max_api_revision=_API_REVISION,
        client=options.client,
        rank=options.rank,
        world_size=options.world_size,
    )


class Link:
    """Thread-safe."""

    def __init__(
        self,
        options: ConnectOptions,
        on_notice: Callable[[session_pb2.Notice], None],
        on_lost: Callable[[], None],
        stop: threading.Event,
    ) -> None:
        """Attach, Welcome, HELLO, ledger. Gives up at `options.connect_ms` or soon after `stop` is set."""
        deadline = clock.after_ms(options.connect_ms)
        self._path = socket_path(options.endpoint)
        self._server_uid = options.server_uid
        check_listening(self._path)
        hello = _hello(options)
        self.transport = Transport(self._path)
        self._stream = AttachStream(self.transport, hello, on_notice, on_lost)
        self._fd_socket: FdSocket | None = None
        try:
            self._welcome = self._wait_welcome(deadline, stop)
            self._bind()
        except BaseException:
            self.close()
            raise
        self.ids = MemoryIds()
        self.slots = LedgerSlots(self._welcome.ledger_slots)
        self._offering = threading.Lock()  # one exchange at a time; nothing urgent may wait for it
        self._spare: FdSocket | None = None

    def _wait_welcome(self, deadline: float, stop: threading.Event) -> session_pb2.Welcome:
        try:
            self._stream.wait_welcome(deadline, stop)
        except KvtriageError as error:
            if error.reason:
                raise
            # gRPC's own error of a service that accepted the connection and then went away, or is none.
            text = f"{self._path} is served, but not by a kvtriaged that lets us in: {error.message}"
            raise local_error(Code.UNAVAILABLE, "not_kvtriage", text) from error
        return self._stream.welcome

    def _bind(self) -> None:
        welcome = self._welcome
        self._fd_path = sibling_path(self._path, welcome.fd_socket_name)
        self._fd_socket = FdSocket(self._fd_path, self._server_uid, _FD_SOCKET_SECONDS)
        bound = self._fd_socket.hello(welcome.session_token)
        self.ledger = Ledger(bound, welcome.session_id)
        if bound.epoch != welcome.server_epoch:
            raise local_error(Code.UNAVAILABLE, "not_kvtriage", "the two sockets are of two services")
        self._life = ServerLife(self._fd_socket.connection)
        self.transport.bind(welcome.session_token, welcome.limits.max_request_bytes)

    @property
    def epoch(self) -> int:
        return self._welcome.server_epoch

    @property
    def session_id(self) -> int:
        return self._welcome.session_id

    @property
    def server(self) -> ServerProcess:
        assert self._fd_socket is not None  # set before the link is anybody's
        return self._fd_socket.server

    def lost(self) -> bool:
        """The stream is over: so is the session, though a job of it may still be running."""
        return self._stream.lost

    def quiet(self, wait_ms: float = 0) -> bool:
        """Nothing of this session stores anything any more: the service said so, or it is gone.

        Waits at most `wait_ms` for the end of the process.
        """
        return self.ledger.session_closed() or self._life.wait_gone(wait_ms)

    def wait_quiet(self, deadline: float) -> bool:
        """True as soon as it is quiet."""
        while not self.quiet(wait_ms=1):
            if clock.passed(deadline):
                return False
        return True

    def offer(self, fds: list[int]) -> list[int]:
        """Hands descriptors over; one ticket each.

        Connects to the fd socket again when the connection broke.
        """
        assert self._fd_socket is not None
        with self._offering:
            try:
                return (self._spare or self._fd_socket).offer(fds)
            except KvtriageError as error:
                if error.from_service or self.lost():
                    raise
            # A broken or out-of-step connection, not a refusal. The first one stays: `_life` may watch it.
            self._spare = FdSocket(self._fd_path, self._server_uid, _FD_SOCKET_SECONDS)
            Ledger(self._spare.hello(self._welcome.session_token), self.session_id)
            return self._spare.offer(fds)

    def say_goodbye(self) -> None:
        """Without waiting. Safe in a finalizer."""
        self._stream.say_goodbye()

    def wait_done(self, timeout: float) -> bool:
        return self._stream.wait_done(timeout)

    def close(self) -> None:
        """Ends the lease and the channel; the ledger stays readable. Calls in flight are cut off."""
        self._stream.cancel()
        self.transport.close()
