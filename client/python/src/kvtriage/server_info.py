"""What a service says about itself."""

from __future__ import annotations

from dataclasses import dataclass

from kvtriage.policy import Policy


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bytes, counts, milliseconds."""

    max_request_bytes: int
    max_response_bytes: int
    max_regions: int
    max_caches: int
    max_sequences_per_call: int
    max_blocks_per_table: int
    max_in_flight: int
    max_tracked_sequences: int
    max_state_bytes: int  # running scores of all sessions
    default_deadline_ms: int
    max_deadline_ms: int
    result_ttl_ms: int


@dataclass(frozen=True, slots=True)
class ServerDevice:
    kind: str  # "cpu", "cuda", or "unknown" when newer than this library
    name: str
    memory_bytes: int
    healthy: bool
    uuid: str  # of a CUDA device


@dataclass(frozen=True, slots=True)
class ServerInfo:
    epoch: int  # new at every start of the service; compare for equality
    version: str
    min_api_revision: int
    max_api_revision: int
    draining: bool
    groups: bool  # ranks may decide together (group.py)
    devices: tuple[ServerDevice, ...]
    limits: ServerLimits
    policies: tuple[Policy, ...]  # every known name, expanded, without amounts
    default_policy: str  # empty: a request must name one
