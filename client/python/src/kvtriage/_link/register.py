"""Lends a lot of memory over one link."""

from __future__ import annotations

import os

from kvtriage._link import deadline as clock
from kvtriage._link.link import Link
from kvtriage._link.memory_book import Lot
from kvtriage._link.retry import with_retry
from kvtriage._messages.cache import cache_message, region_message
from kvtriage.errors import Code, KvtriageError, local_error
from kvtriage.v1 import memory_pb2, types_pb2

MAX_REGIONS_PER_CALL = 32  # tickets that may wait at the service
_RESOLVE_MS = 5000
_STREAM_END_SECONDS = 1.0
KEY_BYTES = 16


def new_key() -> bytes:
    """An idempotency key: one key, one effect."""
    return os.urandom(KEY_BYTES)


def _tickets_for(link: Link, lot: Lot) -> list[int]:
    """One for each region; 0 for device memory, which needs none."""
    fds = [lent.spec.fd for lent in lot.regions if lent.spec.cuda is None]
    given = iter(link.offer(fds) if fds else [])
    return [next(given) if lent.spec.cuda is None else 0 for lent in lot.regions]


def _request_of(link: Link, lot: Lot, first: bool) -> memory_pb2.RegisterRegionsRequest:
    caches = [memory_pb2.CacheRegistration(spec=cache_message(lent.spec, link.ids)) for lent in lot.caches]
    tickets = _tickets_for(link, lot)
    return memory_pb2.RegisterRegionsRequest(
        header=types_pb2.RequestHeader(idempotency_key=new_key()),
        regions=[region_message(lent.spec, ticket, first) for lent, ticket in zip(lot.regions, tickets)],
        caches=caches,
    )


def _call(
    link: Link, request: memory_pb2.RegisterRegionsRequest, deadline: float
) -> memory_pb2.RegisterRegionsResponse:
    return link.transport.call(request, memory_pb2.RegisterRegionsResponse, deadline)


def _resolve(
    link: Link, request: memory_pb2.RegisterRegionsRequest, error: KvtriageError
) -> memory_pb2.RegisterRegionsResponse:
    """Of a call that was cut off: it may have been done all the same. Raises `error` if it was not."""
    if error.reason or link.lost():
        raise error
    request.header.resolve = True
    try:
        return _call(link, request, clock.after_ms(_RESOLVE_MS))
    except KvtriageError:
        raise error from None


def register_lot(link: Link, lot: Lot, first: bool, retry: bool, deadline: float) -> None:
    """One call, all or nothing; the ids go into `link`.

    Fingerprints are sent with `first` only: the bytes change once the memory is in use.
    """
    request = _request_of(link, lot, first)
    try:
        response = with_retry(retry, deadline, lambda: _call(link, request, deadline))
    except KvtriageError as error:
        response = _resolve(link, request, error)
    if len(response.region_ids) != len(lot.regions) or len(response.cache_ids) != len(lot.caches):
        raise local_error(Code.INTERNAL, "bad_answer", "another number of ids than asked for")
    for region, server_id in zip(lot.regions, response.region_ids):
        link.ids.set_region(region.region, server_id)
    for cache, server_id in zip(lot.caches, response.cache_ids):
        link.ids.set_cache(cache.cache, server_id)


def register_all(link: Link, lot: Lot, deadline: float) -> None:
    """Everything in the book, in as few calls as fit."""
    for begin in range(0, len(lot.regions), MAX_REGIONS_PER_CALL):
        part = Lot(lot.regions[begin : begin + MAX_REGIONS_PER_CALL])
        register_lot(link, part, first=False, retry=True, deadline=deadline)
    for cache in lot.caches:
        register_lot(link, Lot(caches=[cache]), first=False, retry=True, deadline=deadline)


def unregister_lot(link: Link, lot: Lot, deadline: float) -> None:
    """Returns when the service has closed its mappings, or when the session is over."""
    if not lot.regions and not lot.caches:
        return
    request = memory_pb2.UnregisterRegionsRequest(
        region_ids=[link.ids.of_region(lent.region) for lent in lot.regions],
        cache_ids=[link.ids.of_cache(lent.cache) for lent in lot.caches],
    )
    try:
        link.transport.call(request, memory_pb2.UnregisterRegionsResponse, deadline)
    except KvtriageError as error:
        # gRPC's own error of a broken connection may come a moment before the end of the stream does.
        if error.reason or not link.wait_done(min(_STREAM_END_SECONDS, clock.seconds_left(deadline))):
            raise
    for region in lot.regions:
        link.ids.remove_region(region.region)
    for cache in lot.caches:
        link.ids.remove_cache(cache.cache)
