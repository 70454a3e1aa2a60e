"""Memory that can be lent: an anonymous memfd, sealed so that neither side can resize it under the other.

Never a named object (`multiprocessing.shared_memory`): nobody else can unlink it, no resource tracker
knows of it, and nothing is left behind (https://github.com/python/cpython/issues/82300).
"""

from __future__ import annotations

import fcntl
import mmap
import os
from types import TracebackType
from typing import Any, final

import numpy as np
import numpy.typing as npt

from kvtriage.cache_description import Access, RegionSpec
from kvtriage.errors import Code, bad_argument, local_error

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@final
class HostMemory:
    """Zeroed memory of `size` bytes, backed when touched. Owns a descriptor and a mapping.

    Arrays made from it keep the mapping alive, so an array is never left dangling; the pages go when the
    last of them, this object and the service's mapping are gone. A region that is still lent when this
    object is closed keeps the pages alive in the service only.
    """

    def __init__(self, size: int) -> None:
        if not 0 < size < 1 << 63:
            raise bad_argument("size of host memory out of range", "size")
        fd = -1
        try:
            fd = os.memfd_create("kvtriage", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            self._map(fd, size)
        except (OSError, ValueError, OverflowError) as error:
            if fd >= 0:
                os.close(fd)
            raise local_error(Code.RESOURCE_EXHAUSTED, "host_memory", f"making a memfd: {error}") from error

    @classmethod
    def wrap(cls, fd: int) -> HostMemory:
        """Maps a memfd that somebody else made (an engine's own cache) and keeps a duplicate of it.

        It must be sealed SHRINK, GROW and SEAL already, else INVALID_ARGUMENT (region_not_sealed).
        """
        try:
            sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
        except OSError:
            sealed = False
        if not sealed:
            message = "the descriptor is not a memfd sealed SHRINK, GROW and SEAL"
            raise local_error(Code.INVALID_ARGUMENT, "region_not_sealed", message)
        own = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0)
        memory = cls.__new__(cls)
        try:
            memory._map(own, os.fstat(own).st_size)
        except (OSError, ValueError) as error:
            os.close(own)
            raise local_error(Code.RESOURCE_EXHAUSTED, "host_memory", f"mapping a memfd: {error}") from error
        return memory

    def _map(self, fd: int, size: int) -> None:
        mapping = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._mapping: mmap.mmap | None = mapping
        self._fd = fd
        self._size = size

    @property
    def size(self) -> int:
        return self._size

    @property
    def fd(self) -> int:
        """The memfd; ours to close. -1 after close()."""
        return self._fd

    @property
    def buffer(self) -> memoryview:
        """All bytes, writable, without a copy: for torch.frombuffer and the like."""
        return memoryview(self._open())

    def array(
        self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.uint8, offset: int = 0
    ) -> npt.NDArray[Any]:
        """A C-contiguous array over the bytes from `offset` on, without a copy."""
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=self._open(), offset=offset)
        return array

    def _open(self) -> mmap.mmap:
        if self._mapping is None:
            raise ValueError("this memory is closed")
        return self._mapping

    def lend(
        self, offset: int = 0, size: int | None = None, access: Access = Access.READ_WRITE, tag: int = 0
    ) -> RegionSpec:
        """A part as something to register, by default the whole. `offset`: a multiple of the page size."""
        length = self._size - offset if size is None else size
        return RegionSpec(fd=self._fd, offset=offset, size=length, access=access, tag=tag)

    def close(self) -> None:
        """Closes the descriptor. The mapping goes now, or with the last array that was made from it."""
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        # Never mmap.close(): NumPy's arrays hold the object, not the buffer, and would point into nothing.
        self._mapping = None

    def __enter__(self) -> HostMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()
