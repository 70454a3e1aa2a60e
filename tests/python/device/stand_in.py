"""The stand-in for the CUDA driver (tests/support/fake_cuda), as the library that Python loads.

On a machine with a GPU, KVTRIAGE_TEST_DEVICE=real takes the driver that is there instead, and the kvtriaged
of KVTRIAGE_BIN; tests that script the stand-in are skipped then.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

BIN = Path(os.environ.get("KVTRIAGE_BIN", Path(__file__).resolve().parents[3] / "build" / "dev" / "bin"))
LIBRARY = BIN.parent / "tests_bin" / "libkvtriage_fake_libcuda.so"
REAL = os.environ.get("KVTRIAGE_TEST_DEVICE") == "real"


class StandIn:
    """tests/support/fake_cuda/fake_cuda.h says what a script can do."""

    def __init__(self) -> None:
        if not LIBRARY.exists():
            pytest.fail(f"no {LIBRARY}: build kvtriage_fake_libcuda first")
        self._loaded = ctypes.CDLL(str(LIBRARY))
        self._loaded.kvtriage_fake_cuda_count.restype = ctypes.c_uint64

    def script(self, text: str) -> None:
        """From now on; the counts start anew."""
        assert self._loaded.kvtriage_fake_cuda_script(text.encode()) == 0, text

    def count(self, call: str) -> int:
        """Calls of this process since the script; "allocations": those that are open."""
        return int(self._loaded.kvtriage_fake_cuda_count(call.encode()))
