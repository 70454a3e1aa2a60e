"""Memory of a CUDA device that can be lent: what cudaMalloc made, exported by its IPC handle.

A tensor of an engine is lent as it is (lend_tensor); a program that has no memory yet takes a DeviceMemory.
Neither torch nor the CUDA toolkit is needed, only the driver, and that only once one of these is called.

Lent memory is freed only after unregister has returned: the service has closed its mapping then, and freeing
before is undefined behaviour by CUDA's own rules. Whatever stands in RegionSpec.owner is kept so long.
Before a call of the session, the engine's streams are idle (torch.cuda.synchronize): the service does not
wait for them.
"""

from __future__ import annotations

import logging
import math
import weakref
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from kvtriage._cuda.driver import Driver, find_driver
from kvtriage._cuda.pointer import ExportableAllocation, find_allocation, no_handle
from kvtriage.cache_description import Access, CudaAllocation, Fingerprint, RegionSpec
from kvtriage.errors import Code, KvtriageError, bad_argument, local_error

__all__ = ["CudaDevice", "DeviceMemory", "lend_device_memory", "lend_tensor", "list_cuda_devices"]

_FINGERPRINT_BYTES = 64
_log = logging.getLogger("kvtriage.cuda")


@dataclass(frozen=True, slots=True)
class CudaDevice:
    uuid: str  # "GPU-...": the same in every process, unlike the ordinal
    name: str


def list_cuda_devices() -> list[CudaDevice]:
    """What CUDA shows this process, by ordinal; never empty. Takes no memory of a device.

    UNAVAILABLE (no_device) without a device or a driver.
    """
    driver = find_driver()
    count = driver.device_count()
    if count == 0:
        raise local_error(Code.UNAVAILABLE, "no_device", "CUDA shows no device")
    return [CudaDevice(_uuid_text(driver.device_uuid(i)), driver.device_name(i)) for i in range(count)]


def lend_device_memory(
    pointer: int, nbytes: int, access: Access = Access.READ_WRITE, tag: int = 0, owner: object = None
) -> RegionSpec:
    """[pointer, pointer + nbytes) as something to register, with a fingerprint of its first bytes.

    Until register has returned, nothing may write there. The driver is asked for the rest, so `pointer` may
    lie anywhere in an allocation. The service maps the whole allocation and touches the lent bytes only.
    `owner` is kept as long as the memory is lent.

    FAILED_PRECONDITION (vmm_memory) for memory that no handle exports, with its kind (virtual memory
    management, a stream-ordered pool, managed memory) and the setting to change. INVALID_ARGUMENT
    (bad_argument) when it is not device memory or ends outside its allocation; UNAVAILABLE (no_device);
    INTERNAL (cuda_call) with CUDA's number. Nothing was sent in any of these cases.
    """
    if nbytes <= 0:
        raise bad_argument(f"{nbytes} bytes to lend", "nbytes")
    driver = find_driver()
    allocation = find_allocation(driver, pointer)
    offset = pointer - allocation.base
    if offset + nbytes > allocation.size:
        raise bad_argument("the memory to lend ends outside its allocation", "nbytes")
    with driver.on(allocation.device):
        exported = _export(driver, allocation)
        expected = _read(driver, pointer, min(nbytes, _FINGERPRINT_BYTES)).tobytes()
    return RegionSpec(
        cuda=exported,
        offset=offset,
        size=nbytes,
        access=access,
        tag=tag,
        fingerprint=Fingerprint(0, expected),
        owner=owner,
    )


def lend_tensor(tensor: Any, access: Access = Access.READ_WRITE, tag: int = 0) -> RegionSpec:
    """The bytes from a tensor's first element to its last as something to register; it is kept so long.

    Of a tensor of torch, or anything with `__cuda_array_interface__` (CuPy, Numba). Its elements need not
    lie next to each other. Offsets of views count from the element with the lowest address: the region's
    byte 0. Errors are lend_device_memory's.
    """
    try:
        interface = tensor.__cuda_array_interface__
    except (AttributeError, TypeError, RuntimeError) as error:  # torch: on a CPU, a dtype unknown to NumPy
        text = f"not a tensor on a CUDA device that says where it lies ({error}); torch's tensor.view(torch.uint8) does"
        raise bad_argument(text, "tensor") from error
    pointer, readonly = interface["data"]
    if readonly and access is not Access.READ:
        raise bad_argument("the tensor is read-only: lend it with Access.READ", "access")
    shape, item = interface["shape"], int(interface["typestr"][2:])
    if math.prod(shape) == 0:
        raise bad_argument("a tensor without elements", "tensor")
    strides = interface.get("strides") or _dense_strides(shape, item)
    steps = [(count - 1) * stride for count, stride in zip(shape, strides, strict=True)]
    low, high = sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps)
    return lend_device_memory(pointer + low, high - low + item, access, tag, owner=tensor)


@final
class DeviceMemory:
    """An allocation of its own on a device. Any thread may call; no call changes the thread's device.

    It is freed when the last reference is gone: yours, those of tensors that share it, and that of each
    region of it that is registered.
    """

    def __init__(self, driver: Driver, device: int, pointer: int, nbytes: int) -> None:
        """Takes over an allocation. Callers want create()."""
        self.device = device  # ordinal in this process
        self.pointer = pointer  # in the device's memory
        self.size = nbytes
        self._driver = driver
        # The driver frees everything at the end of the process, in the right order.
        weakref.finalize(self, _free, driver, device, pointer).atexit = False

    @classmethod
    def create(cls, device: int, nbytes: int) -> DeviceMemory:
        """`nbytes` (> 0) with undefined content.

        RESOURCE_EXHAUSTED (device_memory), UNAVAILABLE (no_device), INTERNAL (cuda_call).
        """
        if nbytes <= 0:
            raise bad_argument(f"{nbytes} bytes to allocate", "nbytes")
        driver = find_driver()
        with driver.on(device):
            return cls(driver, device, driver.allocate(nbytes), nbytes)

    def lend(
        self, offset: int = 0, size: int | None = None, access: Access = Access.READ_WRITE, tag: int = 0
    ) -> RegionSpec:
        """A part as something to register, by default the whole. As lend_device_memory."""
        size = self.size - offset if size is None else size
        self._check_range(offset, size)
        return lend_device_memory(self.pointer + offset, size, access, tag, owner=self)

    def write(self, offset: int, source: bytes | npt.NDArray[Any]) -> None:
        """Copies the bytes of `source` to `offset`; done when it returns."""
        array = source if isinstance(source, np.ndarray) else np.frombuffer(source, np.uint8)
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._check_range(offset, content.size)
        with self._driver.on(self.device):
            self._driver.copy_to_device(self.pointer + offset, content.ctypes.data, content.size)

    def read(self, offset: int = 0, size: int | None = None) -> npt.NDArray[np.uint8]:
        """A copy of `size` bytes from `offset` on, by default of all."""
        size = self.size - offset if size is None else size
        self._check_range(offset, size)
        with self._driver.on(self.device):
            return _read(self._driver, self.pointer + offset, size)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """Its bytes: torch.as_tensor(memory, device="cuda") shares and keeps them."""
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.pointer, False), "version": 3}

    def _check_range(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            text = f"bytes [{offset}, {offset + size}) of device memory of {self.size}"
            raise local_error(Code.OUT_OF_RANGE, "bad_argument", text)


def _free(driver: Driver, device: int, pointer: int) -> None:
    try:
        with driver.on(device):
            driver.free(pointer)
    except KvtriageError as error:  # nobody to raise it to
        _log.error("device memory was not freed: %s", error)


def _export(driver: Driver, allocation: ExportableAllocation) -> CudaAllocation:
    handle = driver.ipc_handle(allocation.base)
    if handle is None:
        raise no_handle(
            "the driver exports no IPC handle of this memory: allocate the cache with cudaMalloc; WSL2 and "
            "Tegra have no such handles at all"
        )
    uuid = _uuid_text(driver.device_uuid(allocation.device))
    return CudaAllocation(handle, uuid, allocation.size, allocation.number)


def _read(driver: Driver, pointer: int, size: int) -> npt.NDArray[np.uint8]:
    content = np.empty(size, np.uint8)
    driver.copy_to_host(content.ctypes.data, pointer, size)
    return content


def _uuid_text(uuid: bytes) -> str:
    """As the driver's tools print it: 8-4-4-4-12 hexadecimal digits."""
    digits = uuid.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(("GPU", *parts))


def _dense_strides(shape: tuple[int, ...], item: int) -> list[int]:
    strides = [item] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides
