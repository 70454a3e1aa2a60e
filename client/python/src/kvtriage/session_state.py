"""How a session stands."""

from __future__ import annotations

from dataclasses import dataclass

from kvtriage.errors import KvtriageError


@dataclass(frozen=True, slots=True)
class SessionState:
    alive: bool = False  # attached, bound and everything registered
    epoch: int = 0  # of the last attachment
    session_id: int = 0
    server_pid: int = 0  # as the fd socket shows it; 0 in another PID namespace
    server_uid: int = 0
    server_gid: int = 0
    draining: bool = False  # the service announced its end
    device_sick: bool = False  # expect UNAVAILABLE until it restarts
    attachments: int = 0  # 1 after connect
    last_error: KvtriageError | None = None  # of the last try to attach anew; None when alive
