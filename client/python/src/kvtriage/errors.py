"""What an error of a call says."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """The codes of gRPC, so that nobody who catches an error has to import gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class KvtriageError(Exception):
    """A refusal of the service, or of this library before anything was sent.

    `reason` is one word for logs and runbooks. From the service it is the lower-case tail of its
    ErrorReason ("block_out_of_range"). From this library:

    - of attaching: socket_missing, socket_denied, not_kvtriage, fd_socket_missing, fd_socket_denied,
      fd_socket_silent, server_untrusted;
    - of a session: not_attached, forked, closed, ledger_slots_busy, registration_busy, session_not_quiet,
      stream_over, interrupted;
    - of what was given: bad_argument, request_too_large, region_not_sealed, host_memory; for device memory
      cuda_call and the service's words no_device, device_memory, vmm_memory;
    - of what came back: bad_answer; no_kvtriaged of a PrivateService.

    It is empty for an error that gRPC made by itself (a deadline, a broken connection): what became of such a
    call is not known by it.
    """

    def __init__(
        self,
        code: Code,
        reason: str,
        message: str,
        *,
        field: str = "",
        index: int = 0,
        got: int = 0,
        limit: int = 0,
        more_indices: tuple[int, ...] = (),
        retry_after_ms: int = 0,
        unharmed: bool = False,
        from_service: bool = False,
        server_epoch: int = 0,
        log_id: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.field = field  # request path, e.g. "sequences[3].table"
        self.index = index  # first bad entry
        self.got = got
        self.limit = limit
        self.more_indices = more_indices  # further bad entries
        self.retry_after_ms = retry_after_ms  # 0: do not repeat the same call
        self.unharmed = unharmed  # the cache is byte for byte as before the call
        self.from_service = from_service
        self.server_epoch = server_epoch
        self.log_id = log_id  # find the service's log line with it

    def __str__(self) -> str:
        where = f" at {self.field}" if self.field and self.field not in self.message else ""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.code.name}{reason}{where}: {self.message}"  # the message names the numbers

    def __repr__(self) -> str:
        return f"KvtriageError({self!s})"


def local_error(code: Code, reason: str, message: str, field: str = "") -> KvtriageError:
    """An error of our own making: nothing was sent, or nothing came of it."""
    return KvtriageError(code, reason, message, field=field, unharmed=True)


def bad_argument(message: str, field: str = "") -> KvtriageError:
    return local_error(Code.INVALID_ARGUMENT, "bad_argument", message, field)
