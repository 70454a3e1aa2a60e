"""Host memory: sealed, shared without a copy, gone with the last one who holds it."""

from __future__ import annotations

import fcntl
import os
import tempfile

import kvtriage
import numpy as np
import pytest


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def mappings() -> int:
    with open("/proc/self/maps") as maps:
        return sum("memfd:kvtriage" in line for line in maps)


def test_is_sealed_and_zero() -> None:
    with kvtriage.HostMemory(10_000) as memory:
        wanted = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        assert fcntl.fcntl(memory.fd, fcntl.F_GET_SEALS) == wanted
        with pytest.raises(OSError):
            os.ftruncate(memory.fd, 1)
        assert not memory.array(10_000).any()


def test_arrays_and_the_buffer_are_the_same_bytes() -> None:
    memory = kvtriage.HostMemory(4096)
    floats = memory.array((4, 8), np.float32, offset=128)
    floats[3, 7] = 1.5
    assert memory.array(4096)[128 + 31 * 4 : 128 + 32 * 4].tobytes() == np.float32(1.5).tobytes()
    assert np.frombuffer(memory.buffer, np.float32, 32, 128)[31] == 1.5
    with pytest.raises(TypeError):
        memory.array((4096,), np.float32)  # ends outside


def test_an_array_outlives_its_memory() -> None:
    before = descriptors(), mappings()
    memory = kvtriage.HostMemory(1 << 20)
    array = memory.array(1 << 20)
    memory.close()
    memory.close()  # again: nothing
    array[:] = 7  # the mapping is still there
    assert mappings() == before[1] + 1
    del array, memory
    assert (descriptors(), mappings()) == before


def test_wrap_shares_a_sealed_memfd_and_refuses_others() -> None:
    with kvtriage.HostMemory(8192) as memory, kvtriage.HostMemory.wrap(memory.fd) as same:
        memory.array(8192)[5] = 9
        assert same.size == 8192 and same.array(8192)[5] == 9
    with tempfile.TemporaryFile() as file, pytest.raises(kvtriage.KvtriageError) as refused:
        kvtriage.HostMemory.wrap(file.fileno())
    assert refused.value.reason == "region_not_sealed"


@pytest.mark.parametrize("size", [0, -1, 1 << 63, 1 << 62])
def test_impossible_sizes_are_refused(size: int) -> None:
    before = descriptors()
    with pytest.raises(kvtriage.KvtriageError) as refused:
        kvtriage.HostMemory(size)
    assert refused.value.reason in ("bad_argument", "host_memory")
    assert descriptors() == before
