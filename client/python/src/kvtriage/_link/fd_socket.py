"""The client's end of the fd socket: binds the session to this process, receives the ledger, hands
descriptors over. Packets: proto/wire/fd_packet.h."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

from kvtriage._link.endpoint import check_path
from kvtriage._link.error_details import service_refusal
from kvtriage._link.server_life import peer_credentials
from kvtriage.errors import Code, KvtriageError, local_error

_HEADER = struct.Struct("<4sHHII")  # magic, version, type, length of the packet, zero
_HELLO = struct.Struct("<24s")
_BOUND = struct.Struct("<QII")  # epoch, ledger bytes, ledger slots; with 1 descriptor
_OFFER = struct.Struct("<QI8II")  # tag, count, kinds, zero; with `count` descriptors
_TICKETS = struct.Struct("<QII8Q")  # tag, count, zero, tickets
_REFUSED = struct.Struct("<QII")  # tag, reason, index
_MAGIC, _VERSION = b"KVFD", 1
_TYPE_HELLO, _TYPE_BOUND, _TYPE_OFFER, _TYPE_TICKETS, _TYPE_REFUSED = 1, 2, 3, 4, 5
_KIND_MEMFD = 1
_MAX_PACKET, _MAX_DESCRIPTORS = 256, 8


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """Who listens; pid 0 in another PID namespace."""

    pid: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class BoundLedger:
    fd: int  # the receiver's to close
    epoch: int
    bytes: int
    slots: int


def _protocol(what: str) -> KvtriageError:
    return local_error(Code.UNAVAILABLE, "not_kvtriage", f"fd socket: {what}")


class FdSocket:
    """Not thread-safe. Every call waits at most the timeout."""

    def __init__(self, path: str, server_uid: int | None, timeout: float) -> None:
        """Connects and checks who listens: uid 0, our own, or `server_uid`; descriptors go to nobody else.

        PERMISSION_DENIED (fd_socket_denied, server_untrusted), UNAVAILABLE (fd_socket_missing).
        """
        check_path(path)
        self._next_tag = 1
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.connection.settimeout(timeout)
            self.server = self._connect(path, server_uid)
        except BaseException:
            self.connection.close()
            raise

    def _connect(self, path: str, server_uid: int | None) -> ServerProcess:
        try:
            self.connection.connect(path)
            server = ServerProcess(*peer_credentials(self.connection))
        except PermissionError as error:
            raise local_error(Code.PERMISSION_DENIED, "fd_socket_denied", f"{path}: {error}") from error
        except OSError as error:
            raise local_error(Code.UNAVAILABLE, "fd_socket_missing", f"{path}: {error}") from error
        if server.uid not in (0, os.geteuid(), server_uid):
            text = f"uid {server.uid} listens at {path}: not ours, not root, not the configured one"
            raise local_error(Code.PERMISSION_DENIED, "server_untrusted", text)
        return server

    def hello(self, token: bytes) -> BoundLedger:
        if len(token) != _HELLO.size:
            raise _protocol("the session token has another size")
        self._send(_TYPE_HELLO, _HELLO.pack(token), [])
        kind, body, fds = self._receive()
        if kind != _TYPE_BOUND:
            raise self._refusal(kind, body, fds)
        if len(body) != _BOUND.size or len(fds) != 1:
            _close_all(fds)
            raise _protocol("malformed BOUND")
        return BoundLedger(fds[0], *_BOUND.unpack(body))

    def offer(self, fds: list[int]) -> list[int]:
        """One ticket per descriptor, in order. Sends packets of at most 8."""
        tickets: list[int] = []
        for begin in range(0, len(fds), _MAX_DESCRIPTORS):
            tickets += self._offer_packet(fds[begin : begin + _MAX_DESCRIPTORS])
        return tickets

    def __del__(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()

    def _offer_packet(self, fds: list[int]) -> list[int]:
        tag, self._next_tag = self._next_tag, self._next_tag + 1
        kinds = [_KIND_MEMFD] * len(fds) + [0] * (_MAX_DESCRIPTORS - len(fds))
        self._send(_TYPE_OFFER, _OFFER.pack(tag, len(fds), *kinds, 0), fds)
        kind, body, received = self._receive()
        if kind != _TYPE_TICKETS:
            raise self._refusal(kind, body, received)
        _close_all(received)
        if len(body) != _TICKETS.size or received:
            raise _protocol("malformed TICKETS")
        answered_tag, count, _, *tickets = _TICKETS.unpack(body)
        if answered_tag != tag or count != len(fds):
            raise _protocol("TICKETS of another offer")
        return tickets[:count]

    def _send(self, kind: int, body: bytes, fds: list[int]) -> None:
        packet = _HEADER.pack(_MAGIC, _VERSION, kind, _HEADER.size + len(body), 0) + body
        try:
            sent = socket.send_fds(self.connection, [packet], fds, socket.MSG_NOSIGNAL)
        except OSError as error:
            raise local_error(Code.UNAVAILABLE, "fd_socket_denied", f"fd socket: {error}") from error
        if sent != len(packet):
            raise _protocol("a packet was cut")

    def _receive(self) -> tuple[int, bytes, list[int]]:
        """(type, body, descriptors); the descriptors are the caller's to close."""
        try:
            packet, fds, flags, _ = socket.recv_fds(
                self.connection, _MAX_PACKET, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise local_error(Code.UNAVAILABLE, "fd_socket_silent", f"fd socket: {error}") from error
        if not packet:
            raise local_error(Code.UNAVAILABLE, "fd_socket_denied", "fd socket: closed by the service")
        whole = not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) and len(packet) >= _HEADER.size
        if whole:
            magic, version, kind, length, zero = _HEADER.unpack_from(packet)
            if (magic, version, length, zero) == (_MAGIC, _VERSION, len(packet), 0):
                return kind, packet[_HEADER.size :], fds
        _close_all(fds)
        raise _protocol("malformed packet")

    @staticmethod
    def _refusal(kind: int, body: bytes, fds: list[int]) -> KvtriageError:
        """The refusal in a packet, or a protocol error when it is of another wrong kind."""
        _close_all(fds)
        if kind != _TYPE_REFUSED or len(body) != _REFUSED.size:
            return _protocol("unexpected packet")
        _, reason, index = _REFUSED.unpack(body)
        return service_refusal(reason, index, "refused on the fd socket")


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
