"""Whether the service's process is really gone.

Only then is it certain that no store of its comes any more: a reset connection says nothing about a process
that still runs.
"""

from __future__ import annotations

import os
import select
import socket
import struct

_SO_PEERPIDFD = 77  # Linux 6.5; Python's socket module does not name it
_POLLRDHUP = 0x2000
_UCRED = struct.Struct("=iII")  # pid, uid, gid; the ids are unsigned


def peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    """(pid, uid, gid) of the process at the other end. OSError."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, gid = _UCRED.unpack(raw)
    return pid, uid, gid


def _peer_pidfd(connection: socket.socket) -> int:
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        pass  # an older kernel
    try:
        pid = peer_credentials(connection)[0]
        pidfd = os.pidfd_open(pid) if pid else -1
    except OSError:
        return -1
    # The pid may have passed to another process in between: only then is the socket hung up by now.
    hung_up = select.poll()
    hung_up.register(connection, _POLLRDHUP)
    if pidfd >= 0 and hung_up.poll(0):
        os.close(pidfd)
        return -1
    return pidfd


class ServerLife:
    """Of the process at the other end of `connection` (SO_PEERPIDFD, else pidfd_open of its pid).

    On kernels with neither, a hung-up socket counts as the end. `connection` outlives this object.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pidfd = _peer_pidfd(connection)

    def gone(self) -> bool:
        return self.wait_gone(0)

    def wait_gone(self, timeout_ms: float) -> bool:
        """True as soon as it is gone, False after `timeout_ms`."""
        watched = select.poll()  # of this call: many threads may ask
        if self._pidfd >= 0:
            watched.register(self._pidfd, select.POLLIN)
        else:
            watched.register(self._connection, _POLLRDHUP)
        return bool(watched.poll(timeout_ms))

    def __del__(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
