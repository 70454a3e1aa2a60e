"""The service's ids of our handles, for one attachment. A new attachment has new ids."""

from __future__ import annotations

from kvtriage.cache_description import Cache, Region

# Handles that a session gives out start here; smaller ones are indices into one Registration.
FIRST_HANDLE = 1 << 32

# No region or cache has it: the service answers MEMORY_UNKNOWN and names the field.
_UNKNOWN_ID = (1 << 64) - 1


class MemoryIds:
    """Thread-safe: single operations on dictionaries."""

    def __init__(self) -> None:
        self._regions: dict[int, int] = {}
        self._caches: dict[int, int] = {}

    def set_region(self, region: Region, server_id: int) -> None:
        self._regions[region.handle] = server_id

    def set_cache(self, cache: Cache, server_id: int) -> None:
        self._caches[cache.handle] = server_id

    def remove_region(self, region: Region) -> None:
        self._regions.pop(region.handle, None)

    def remove_cache(self, cache: Cache) -> None:
        self._caches.pop(cache.handle, None)

    def of_region(self, region: Region) -> int:
        if region.handle < FIRST_HANDLE:
            return region.handle
        return self._regions.get(region.handle, _UNKNOWN_ID)

    def of_cache(self, cache: Cache) -> int:
        return self._caches.get(cache.handle, _UNKNOWN_ID)

    def region_of(self, server_id: int) -> Region:
        """Region(0) for an id that we do not know."""
        return Region(_key_of(self._regions, server_id))

    def cache_of(self, server_id: int) -> Cache:
        return Cache(_key_of(self._caches, server_id))


def _key_of(known: dict[int, int], server_id: int) -> int:
    return next((handle for handle, found in list(known.items()) if found == server_id), 0)
