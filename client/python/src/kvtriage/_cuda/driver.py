"""Calls of the CUDA driver, with errors in our words.

The library is libcuda.so.1, which comes with the GPU's driver, or the one that KVTRIAGE_LIBCUDA names. It is
loaded at the first use. Source of the calls and numbers: cuda.h of CUDA 12 and 13; the exported names carry
the version of a call's signature (cuMemAlloc_v2).

Any thread may call. No call leaves the thread with another context than it had, and none creates a context
on a device that nobody asked for.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

from kvtriage.errors import Code, KvtriageError, local_error

_INVALID_VALUE, _OUT_OF_MEMORY, _STUB_LIBRARY, _INSUFFICIENT_DRIVER, _NO_DEVICE = 1, 2, 34, 35, 100
_NOT_SUPPORTED = 801
_NON_BLOCKING = 1  # stream flag: ordered with nothing, the default stream included
_NAME_BYTES, _UUID_BYTES, _HANDLE_BYTES = 256, 16, 64

# What each call takes; all return a CUresult. Device pointers and attributes are 64 bits wide.
_CALLS: dict[str, tuple[object, ...]] = {
    "cuInit": (c_uint,),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetUuid_v2": (c_char_p, c_int),
    "cuDevicePrimaryCtxGetState": (c_int, POINTER(c_uint), POINTER(c_int)),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxGetCurrent": (POINTER(c_void_p),),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuMemGetAddressRange_v2": (POINTER(c_uint64), POINTER(c_size_t), c_uint64),
    "cuIpcGetMemHandle": (c_char_p, c_uint64),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
}


def cuda_error(call: str, number: int) -> KvtriageError:
    """What a call's number means to a caller of ours."""
    text = f"{call}: CUDA error {number}"
    if number == _OUT_OF_MEMORY:
        return local_error(Code.RESOURCE_EXHAUSTED, "device_memory", text)
    if number in (_STUB_LIBRARY, _INSUFFICIENT_DRIVER, _NO_DEVICE):
        return local_error(Code.UNAVAILABLE, "no_device", text)
    return local_error(Code.INTERNAL, "cuda_call", text)


class Driver:
    """The loaded library. One object serves the process: find_driver()."""

    def __init__(self, library: str) -> None:
        try:
            loaded = ctypes.CDLL(library)
        except OSError as error:
            raise local_error(Code.UNAVAILABLE, "no_device", f"no CUDA driver here: {error}") from error
        self._calls = {}
        for name, arguments in _CALLS.items():
            if not hasattr(loaded, name):
                text = f"the CUDA driver is too old: it lacks {name}"
                raise local_error(Code.UNAVAILABLE, "no_device", text)
            call = getattr(loaded, name)
            call.argtypes, call.restype = arguments, c_int
            self._calls[name] = call
        self._contexts: dict[int, c_void_p] = {}  # primary, by ordinal; held until the process ends
        self._lock = threading.Lock()
        self._do("cuInit", 0)

    def _try(self, name: str, *arguments: object) -> int:
        return int(self._calls[name](*arguments))

    def _do(self, name: str, *arguments: object) -> None:
        number = self._try(name, *arguments)
        if number != 0:
            raise cuda_error(name, number)

    # ---- devices ----

    def device_count(self) -> int:
        count = c_int()
        self._do("cuDeviceGetCount", count)
        return count.value

    def device_name(self, ordinal: int) -> str:
        name = ctypes.create_string_buffer(_NAME_BYTES)
        self._do("cuDeviceGetName", name, _NAME_BYTES, self._device(ordinal))
        return name.value.decode(errors="replace")

    def device_uuid(self, ordinal: int) -> bytes:
        """16 bytes, the same in every process."""
        uuid = ctypes.create_string_buffer(_UUID_BYTES)
        self._do("cuDeviceGetUuid_v2", uuid, self._device(ordinal))
        return uuid.raw

    def _device(self, ordinal: int) -> int:
        device = c_int()
        self._do("cuDeviceGet", device, ordinal)
        return device.value

    # ---- contexts ----

    @contextmanager
    def on(self, ordinal: int) -> Iterator[None]:
        """While it lasts, the thread is on the device, in the primary context that torch uses too."""
        self._do("cuCtxPushCurrent_v2", self._primary(ordinal))
        try:
            yield
        finally:
            self._do("cuCtxPopCurrent_v2", c_void_p())

    @contextmanager
    def in_some_context(self) -> Iterator[bool]:
        """While it lasts, the thread has a context: its own, or that of a device in use. False: no device
        is in use by this process."""
        current = c_void_p()
        self._do("cuCtxGetCurrent", current)
        if current.value:
            yield True
            return
        ordinal = next((i for i in range(self.device_count()) if self._is_in_use(i)), None)
        if ordinal is None:
            yield False
            return
        with self.on(ordinal):
            yield True

    def _is_in_use(self, ordinal: int) -> bool:
        flags, active = c_uint(), c_int()
        self._do("cuDevicePrimaryCtxGetState", self._device(ordinal), flags, active)
        return active.value != 0

    def _primary(self, ordinal: int) -> c_void_p:
        # Held for good: letting go of the last hold would take all memory of the device with it.
        with self._lock:
            if ordinal not in self._contexts:
                context = c_void_p()
                self._do("cuDevicePrimaryCtxRetain", context, self._device(ordinal))
                self._contexts[ordinal] = context
            return self._contexts[ordinal]

    # ---- pointers; in a context ----

    def attribute(self, attribute: int, pointer: int) -> int | None:
        """None: the driver does not know the pointer, or the attribute."""
        value = c_uint64()
        number = self._try("cuPointerGetAttribute", ctypes.byref(value), attribute, pointer)
        if number == _INVALID_VALUE:
            return None
        if number != 0:
            raise cuda_error("cuPointerGetAttribute", number)
        return value.value

    def address_range(self, pointer: int) -> tuple[int, int]:
        """Base and size of the allocation."""
        base, size = c_uint64(), c_size_t()
        self._do("cuMemGetAddressRange_v2", base, size, pointer)
        return base.value, size.value

    def ipc_handle(self, base: int) -> bytes | None:
        """64 bytes that open the allocation in another process. None: this memory has no handle."""
        handle = ctypes.create_string_buffer(_HANDLE_BYTES)
        number = self._try("cuIpcGetMemHandle", handle, base)
        if number in (_INVALID_VALUE, _NOT_SUPPORTED):
            return None
        if number != 0:
            raise cuda_error("cuIpcGetMemHandle", number)
        return handle.raw

    # ---- memory; on its device ----

    def allocate(self, size: int) -> int:
        pointer = c_uint64()
        self._do("cuMemAlloc_v2", pointer, size)
        return pointer.value

    def free(self, pointer: int) -> None:
        self._do("cuMemFree_v2", pointer)

    def copy_to_host(self, to: int, pointer: int, size: int) -> None:
        """Done when it returns. Ordered with no other stream's work."""
        with self._stream() as stream:
            self._do("cuMemcpyDtoHAsync_v2", to, pointer, size, stream)

    def copy_to_device(self, pointer: int, source: int, size: int) -> None:
        with self._stream() as stream:
            self._do("cuMemcpyHtoDAsync_v2", pointer, source, size, stream)

    @contextmanager
    def _stream(self) -> Iterator[c_void_p]:
        stream = c_void_p()
        self._do("cuStreamCreate", stream, _NON_BLOCKING)
        try:
            yield stream
            self._do("cuStreamSynchronize", stream)
        finally:
            self._do("cuStreamDestroy_v2", stream)


@functools.cache
def find_driver() -> Driver:
    """UNAVAILABLE (no_device) without a driver or a device; asked again at the next call."""
    return Driver(os.environ.get("KVTRIAGE_LIBCUDA", "libcuda.so.1"))
