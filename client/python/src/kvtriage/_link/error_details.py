"""Errors that came over the wire, as KvtriageError."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message import DecodeError

from kvtriage.errors import Code, KvtriageError
from kvtriage.v1 import types_pb2

_DETAILS_KEY = "grpc-status-details-bin"
_PREFIX = "ERROR_REASON_"


def _word_of(reason: Any) -> str:
    try:
        return str(types_pb2.ErrorReason.Name(reason)).removeprefix(_PREFIX).lower()
    except ValueError:
        return f"reason_{reason}"  # newer than we are


def _details_of(serialized: Any) -> types_pb2.ErrorDetail | None:
    try:
        status = types_pb2.RpcStatus.FromString(serialized)
        for packed in status.details:
            detail = types_pb2.ErrorDetail()
            if packed.Unpack(detail):
                return detail
    except DecodeError:
        pass  # not one of ours
    return None


def from_grpc(error: grpc.RpcError) -> KvtriageError:
    """The error of a call that ended. Without our details its `reason` is empty: gRPC made it."""
    code = Code[error.code().name]
    message = error.details() or ""
    metadata = {item.key: item.value for item in error.trailing_metadata() or ()}
    serialized = metadata.get(_DETAILS_KEY)
    detail = _details_of(serialized) if serialized else None
    if detail is None:
        return KvtriageError(code, "", message)
    return KvtriageError(
        code,
        _word_of(detail.reason),
        message,
        field=detail.field,
        index=detail.index,
        got=detail.got,
        limit=detail.limit,
        more_indices=tuple(detail.more_indices),
        retry_after_ms=detail.retry_after_ms,
        unharmed=detail.cache_state == types_pb2.CACHE_STATE_UNHARMED,
        from_service=True,
        server_epoch=detail.server_epoch,
        log_id=detail.log_id,
    )


# The fd socket gives a reason and no code; the codes are those of the service (spec of the API, errors).
_CODES = {
    "session_unknown": Code.UNAUTHENTICATED,
    "session_limit": Code.RESOURCE_EXHAUSTED,
    "too_many": Code.INVALID_ARGUMENT,
    "draining": Code.UNAVAILABLE,
    "internal": Code.INTERNAL,
}


def service_refusal(reason: int, index: int, text: str) -> KvtriageError:
    """A refusal by number, as the fd socket sends it."""
    word = _word_of(reason)
    code = _CODES.get(word, Code.FAILED_PRECONDITION)
    return KvtriageError(code, word, f"{text}: {word}", index=index, unharmed=True, from_service=True)
