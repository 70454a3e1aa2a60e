"""The calls as gRPC makes them: one method, one try, one deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from kvtriage._link import deadline as clock
from kvtriage._link.error_details import from_grpc
from kvtriage.errors import Code, KvtriageError, local_error
from kvtriage.v1 import admin_pb2, blend_pb2, memory_pb2, session_pb2, triage_pb2

Response = TypeVar("Response", bound=Message)

_OPTIONS = (
    # The service allows pings 5 s apart.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # another client's back-off is not ours
    ("grpc.enable_retries", 0),  # we repeat ourselves, with the same key
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 4 << 20),
)
_TOKEN_KEY = "kvtriage-session-bin"
_PACKAGES = (session_pb2, memory_pb2, triage_pb2, blend_pb2, admin_pb2)


def _unary_methods() -> dict[str, str]:
    """Path of the unary method that takes a message, by the message's name: no two take the same."""
    methods = {}
    for package in _PACKAGES:
        for service in package.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                if not method.client_streaming:
                    methods[method.input_type.full_name] = f"/{service.full_name}/{method.name}"
    return methods


_METHODS = _unary_methods()
_ATTACH = "/kvtriage.v1.SessionService/Attach"
_COMPRESS_LAYERS = "/kvtriage.v1.TriageService/CompressLayers"


class Transport:
    """A channel of its own and the session's token. Thread-safe, once the token is set."""

    def __init__(self, path: str) -> None:
        self._channel = grpc.insecure_channel(f"unix:{path}", options=_OPTIONS)
        self._callables: dict[str, Callable[..., Any]] = {}
        self._metadata: tuple[tuple[str, bytes], ...] = ()
        self._max_request_bytes = 0
        self._closed = False

    def bind(self, token: bytes, max_request_bytes: int) -> None:
        """The token is sent with every later call; larger requests are not sent at all."""
        self._metadata = ((_TOKEN_KEY, token),)
        self._max_request_bytes = max_request_bytes

    def call(self, request: Message, answer: type[Response], deadline: float) -> Response:
        """One unary call. KvtriageError for any other end than OK."""
        self._check_size(request)
        name = request.DESCRIPTOR.full_name
        method = self._callables.get(name)
        if method is None:
            method = self._channel.unary_unary(
                _METHODS[name],
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            self._callables[name] = method
        try:
            response: Response = method(
                request, timeout=clock.seconds_left(deadline), metadata=self._metadata
            )
            return response
        except grpc.RpcError as error:
            failure = from_grpc(error)
        except ValueError:  # gRPC's way to say that the channel is closed
            if not self._closed:
                raise
            failure = local_error(Code.UNAVAILABLE, "not_attached", "the attachment is over")
        raise failure  # outside of the handlers: gRPC's error, and all that it holds, is not kept alive by ours

    def attach(self, requests: Iterator[session_pb2.AttachRequest]) -> Any:
        """The lease: a call whose answers are iterated; without a deadline."""
        method = self._channel.stream_stream(
            _ATTACH,
            request_serializer=session_pb2.AttachRequest.SerializeToString,
            response_deserializer=session_pb2.AttachResponse.FromString,
        )
        return method(requests)

    def compress_layers(self, requests: Iterator[triage_pb2.CompressLayersRequest], deadline: float) -> Any:
        method = self._channel.stream_stream(
            _COMPRESS_LAYERS,
            request_serializer=triage_pb2.CompressLayersRequest.SerializeToString,
            response_deserializer=triage_pb2.CompressLayersResponse.FromString,
        )
        return method(requests, timeout=clock.seconds_left(deadline), metadata=self._metadata)

    def close(self) -> None:
        """Cancels what is open."""
        self._closed = True
        self._channel.close()

    def _check_size(self, request: Message) -> None:
        """The service's limit, seen before gRPC would refuse the message without a field or a number."""
        size = request.ByteSize()
        if not 0 < self._max_request_bytes < size:
            return
        raise KvtriageError(
            Code.INVALID_ARGUMENT,
            "request_too_large",
            f"the request has {size} bytes, the service takes {self._max_request_bytes}: "
            "fewer sequences a call, or shorter lists of rows",
            got=size,
            limit=self._max_request_bytes,
            unharmed=True,
        )
