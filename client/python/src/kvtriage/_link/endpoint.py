"""Paths of the service's sockets, and whether anybody listens there."""

from __future__ import annotations

import errno
import os
import socket

from kvtriage.errors import Code, bad_argument, local_error

_MAX_PATH = 107  # bytes of sockaddr_un.sun_path without its end


def socket_path(endpoint: str) -> str:
    """The path in an endpoint that may start with "unix:"."""
    return endpoint.removeprefix("unix:").removeprefix("//")  # unix:///absolute


def check_path(path: str) -> None:
    if not 0 < len(os.fsencode(path)) <= _MAX_PATH:
        raise bad_argument(f"a socket path has 1 to {_MAX_PATH} bytes: {path}", "endpoint")


def check_listening(path: str) -> None:
    """Connects once and closes again, because gRPC does not say why a connection failed.

    UNAVAILABLE (socket_missing), PERMISSION_DENIED (socket_denied), both with the path.
    """
    check_path(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        error = probe.connect_ex(path)
    if error in (0, errno.EAGAIN):  # EAGAIN: somebody listens and is busy
        return
    text = f"{path}: {os.strerror(error)}"
    if error in (errno.EACCES, errno.EPERM):
        raise local_error(Code.PERMISSION_DENIED, "socket_denied", text)
    raise local_error(Code.UNAVAILABLE, "socket_missing", text)


def sibling_path(path: str, name: str) -> str:
    """`name` in the directory of `path`. A service names a neighbour only: no slash."""
    if not name or "/" in name:
        raise local_error(Code.UNAVAILABLE, "not_kvtriage", "the service named no fd socket")
    return os.path.join(os.path.dirname(path), name)
