"""How a session attaches and how long its calls may take."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_ENDPOINT = "/run/kvtriage/kvtriage.sock"


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    endpoint: str = DEFAULT_ENDPOINT  # path of the service's main Unix socket
    client: str = "kvtriage-python"  # "name/version", [A-Za-z0-9._/-], at most 64 bytes
    rank: int = 0  # for the service's log only
    world_size: int = 0
    server_uid: int | None = None  # trusted beside uid 0 and our own; descriptors go to no other
    connect_ms: int = 5000  # limit of each try to attach
    # How long a call whose fate is unknown may take to settle it after its deadline: 5 s and the longest
    # job the service allows.
    settle_ms: int = 35_000


@dataclass(frozen=True, slots=True)
class CallOptions:
    deadline_ms: int = 30_000
    # Repeat a call that was refused for load (at most 3 times, after the pause the service asked for,
    # within the deadline). Off for an engine that would rather go on uncompressed.
    retry: bool = True


CALL = CallOptions()
UNREGISTER = CallOptions(deadline_ms=10_000)
