"""What goes into and comes out of Session.register, unregister and list_regions."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from kvtriage.cache_description import Access, Cache, CacheSpec, Region, RegionSpec


@dataclass(slots=True)
class Registration:
    """Memory, and the caches in it: all or nothing. At most 32 regions a call."""

    regions: Seq[RegionSpec] = ()
    caches: Seq[CacheSpec] = ()  # may use Region.of_this_call


@dataclass(frozen=True, slots=True)
class Registered:
    """In the order of the Registration."""

    regions: tuple[Region, ...]
    caches: tuple[Cache, ...]


@dataclass(frozen=True, slots=True)
class RegionStatus:
    region: Region  # handle 0 when the service lists one that this session does not know
    tag: int
    size: int
    access: Access
    pins: int
    retiring: bool


@dataclass(frozen=True, slots=True)
class CacheStatus:
    cache: Cache
    layers: int
    regions: tuple[Region, ...]


@dataclass(frozen=True, slots=True)
class MemoryList:
    regions: tuple[RegionStatus, ...]
    caches: tuple[CacheStatus, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """Of Session.release_sequences."""

    released: int
    already_gone: int
