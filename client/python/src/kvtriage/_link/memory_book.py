"""What a session has lent, so that it can be lent again to a restarted service."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

from kvtriage._link.memory_ids import FIRST_HANDLE
from kvtriage.cache_description import Cache, CacheSpec, LayerSpec, Region, RegionSpec, ViewSpec
from kvtriage.errors import bad_argument


class OwnDescriptor:
    """A duplicate of the caller's descriptor, closed at the latest with the last entry that holds it."""

    def __init__(self, fd: int) -> None:
        self.fd = -1
        self.fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class LentRegion:
    region: Region
    spec: RegionSpec
    descriptor: OwnDescriptor | None  # None for device memory


@dataclass(frozen=True, slots=True)
class LentCache:
    cache: Cache
    spec: CacheSpec  # regions by handle, or Region.of_this_call until it is entered


@dataclass(frozen=True, slots=True)
class Lot:
    """Memory that is registered in one call."""

    regions: list[LentRegion] = field(default_factory=list)
    caches: list[LentCache] = field(default_factory=list)

    def close(self) -> None:
        """Of a lot that was refused: its error may live on, and with the frames it holds this lot too."""
        for lent in self.regions:
            if lent.descriptor is not None:
                lent.descriptor.close()


def _views_of(layer: LayerSpec) -> Iterator[ViewSpec]:
    yield layer.k
    yield layer.v
    yield from layer.companions


def _uses(spec: CacheSpec, regions: set[int]) -> bool:
    for layer in spec.layers:
        for view in _views_of(layer):
            scales = view.row_scales
            if view.region.handle in regions or (scales is not None and scales.region.handle in regions):
                return True
    return False


def _with_handles(spec: CacheSpec, regions: list[LentRegion]) -> CacheSpec:
    """The same description, with Region.of_this_call replaced by what it stands for."""

    def known(region: Region) -> Region:
        index = region.handle - 1
        return regions[index].region if 0 <= index < len(regions) else region

    def view(old: ViewSpec) -> ViewSpec:
        scales = old.row_scales
        if scales is not None:
            scales = replace(scales, region=known(scales.region))
        return replace(old, region=known(old.region), row_scales=scales)

    layers = [
        replace(layer, k=view(layer.k), v=view(layer.v), companions=[view(c) for c in layer.companions])
        for layer in spec.layers
    ]
    return replace(spec, layers=layers)


class MemoryBook:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_handle = FIRST_HANDLE
        self._regions: dict[int, LentRegion] = {}
        self._caches: dict[int, LentCache] = {}

    def prepare(self, regions: Iterable[RegionSpec], caches: Iterable[CacheSpec]) -> Lot:
        """New handles and duplicated descriptors for a registration; nothing is entered yet."""
        lot = Lot()
        for index, spec in enumerate(regions):
            descriptor = None
            if spec.cuda is None:
                try:
                    descriptor = OwnDescriptor(spec.fd)
                except (OSError, ValueError) as error:
                    lot.close()
                    raise bad_argument("not an open descriptor", f"regions[{index}].fd") from error
                spec = replace(spec, fd=descriptor.fd)
            lot.regions.append(LentRegion(Region(self._new_handle()), spec, descriptor))
        for cache in caches:
            lot.caches.append(LentCache(Cache(self._new_handle()), cache))
        return lot

    def enter(self, lot: Lot) -> None:
        """Enters what the service accepted."""
        caches = [LentCache(lent.cache, _with_handles(lent.spec, lot.regions)) for lent in lot.caches]
        with self._lock:
            self._regions.update((lent.region.handle, lent) for lent in lot.regions)
            self._caches.update((lent.cache.handle, lent) for lent in caches)

    def find(self, regions: Seq[Region], caches: Seq[Cache]) -> Lot:
        """These regions, every cache that uses one, and these caches: those that are lent."""
        named = {cache.handle for cache in caches}
        with self._lock:
            handles = {region.handle for region in regions} & self._regions.keys()
            return Lot(
                [self._regions[handle] for handle in sorted(handles)],
                [
                    lent
                    for handle, lent in self._caches.items()
                    if handle in named or _uses(lent.spec, handles)
                ],
            )

    def remove(self, lot: Lot) -> None:
        with self._lock:
            for region in lot.regions:
                self._regions.pop(region.region.handle, None)
            for cache in lot.caches:
                self._caches.pop(cache.cache.handle, None)

    def all(self) -> Lot:
        with self._lock:
            return Lot(list(self._regions.values()), list(self._caches.values()))

    def spec_of(self, cache: Cache) -> CacheSpec:
        """An empty description for a cache that is not lent: the service refuses such a call."""
        with self._lock:
            lent = self._caches.get(cache.handle)
        return CacheSpec() if lent is None else lent.spec

    def owners(self) -> list[object]:
        """Objects that wait for the return of their memory."""
        with self._lock:
            owners = [lent.spec.owner for lent in self._regions.values()]
        return [owner for owner in owners if owner is not None]

    def _new_handle(self) -> int:
        with self._lock:
            handle = self._next_handle
            self._next_handle += 1
            return handle
