"""The client's end of the fd socket, against servers that do not keep to the protocol."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import kvtriage
import pytest
from kvtriage import Code
from kvtriage._link import fd_socket
from kvtriage._link.fd_socket import FdSocket

TOKEN = bytes(24)


def packet(kind: int, body: bytes, length: int | None = None, zero: int = 0) -> bytes:
    whole = 16 + len(body) if length is None else length
    return struct.pack("<4sHHII", b"KVFD", 1, kind, whole, zero) + body


BOUND = packet(2, struct.pack("<QII", 7, 4096, 4))


class Server:
    """Listens once and answers the first packet with the given one and its descriptors."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "fd")
        self.accepted = threading.Event()
        self._ends: list[socket.socket] = []

    def start(self, answer: bytes, fds: int = 0) -> str:
        """The path where it listens."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.path)
        listener.listen()
        self._ends.append(listener)
        self._thread = threading.Thread(target=self._run, args=[listener, answer, fds], daemon=True)
        self._thread.start()
        return self.path

    def _run(self, listener: socket.socket, answer: bytes, fds: int) -> None:
        connection, _ = listener.accept()
        self._ends.append(connection)
        self.accepted.set()
        if not connection.recv(256):
            return
        if answer:
            socket.send_fds(connection, [answer], [0] * fds)
        else:
            connection.close()

    def close(self) -> None:
        self._thread.join(5)  # every client has connected, and has sent or gone
        for end in self._ends:
            end.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


@pytest.mark.parametrize(
    ("answer", "fds", "reason"),
    [
        (b"", 0, "fd_socket_denied"),
        (BOUND, 0, "not_kvtriage"),
        (BOUND, 2, "not_kvtriage"),
        (b"KVFD", 1, "not_kvtriage"),
        (packet(2, struct.pack("<QII", 7, 4096, 4), length=99), 1, "not_kvtriage"),
        (packet(2, struct.pack("<QII", 7, 4096, 4), zero=1), 1, "not_kvtriage"),
        (packet(4, bytes(80)), 1, "not_kvtriage"),
        (packet(2, bytes(400)), 1, "not_kvtriage"),  # longer than any packet
        (packet(5, struct.pack("<QII", 0, 70, 0)), 1, "session_unknown"),
        (packet(5, struct.pack("<QII", 0, 9999, 0)), 0, "reason_9999"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_a_bound_is_an_error_and_leaves_no_descriptor(
    server: Server, answer: bytes, fds: int, reason: str
) -> None:
    client = FdSocket(server.start(answer, fds), None, 5.0)
    server.accepted.wait()  # its descriptor is ours too
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(kvtriage.KvtriageError) as refused:
        client.hello(TOKEN)
    assert refused.value.reason == reason
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_silent_server_costs_the_timeout(server: Server) -> None:
    client = FdSocket(server.start(BOUND, 1), None, 0.05)
    client.hello(TOKEN)
    with pytest.raises(kvtriage.KvtriageError) as silent:
        client.offer([0])
    assert silent.value.reason == "fd_socket_silent"


def test_descriptors_go_to_nobody_untrusted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    path = server.start(BOUND, 1)
    monkeypatch.setattr(fd_socket, "peer_credentials", lambda connection: (1, 54321, 1))
    with pytest.raises(kvtriage.KvtriageError) as refused:
        FdSocket(path, None, 1.0)
    assert (refused.value.code, refused.value.reason) == (Code.PERMISSION_DENIED, "server_untrusted")
    assert FdSocket(path, 54321, 1.0).server.uid == 54321  # the configured one


def test_a_broken_connection_is_made_again(
    service: kvtriage.PrivateService, session: kvtriage.Session
) -> None:
    memory = kvtriage.HostMemory(4096)
    for _ in range(3):
        link = session._keeper.current()
        current = link._spare or link._fd_socket
        assert current is not None
        current.connection.shutdown(socket.SHUT_RDWR)
        lent = session.register(kvtriage.Registration([memory.lend()] * 9))  # more than one packet
        assert len(session.list_regions().regions) == 9
        session.unregister(lent.regions)
    assert session.alive and session.state.attachments == 1
