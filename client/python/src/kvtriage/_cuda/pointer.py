"""What the driver knows about a pointer: the allocation that holds it, or why that cannot be lent."""

from __future__ import annotations

from dataclasses import dataclass

from kvtriage._cuda.driver import Driver
from kvtriage.errors import Code, KvtriageError, bad_argument, local_error

# CUpointer_attribute of cuda.h.
_MEMORY_TYPE, _BUFFER_ID, _IS_MANAGED, _DEVICE_ORDINAL, _IPC_CAPABLE, _POOL = 2, 7, 8, 9, 10, 17
_TYPE_DEVICE = 2

_MANAGED_TEXT = "managed memory has no IPC handle: allocate the cache with cudaMalloc, not cudaMallocManaged"
_POOL_TEXT = (
    "memory of a stream-ordered pool (cudaMallocAsync) has no IPC handle: allocate the cache with cudaMalloc "
    "(PyTorch: PYTORCH_CUDA_ALLOC_CONF without backend:cudaMallocAsync)"
)
_VMM_TEXT = (
    "memory of CUDA's virtual memory management (VMM) has no IPC handle: allocate the cache with cudaMalloc "
    "(PyTorch: PYTORCH_CUDA_ALLOC_CONF without expandable_segments:True; vLLM: without sleep mode; SGLang: "
    "without memory saver), or let kvtriage allocate it (kvtriage.cuda.DeviceMemory)"
)


@dataclass(frozen=True, slots=True)
class ExportableAllocation:
    """An allocation that a legacy IPC handle exports."""

    base: int
    size: int
    device: int  # ordinal in this process
    number: int  # > 0; no other allocation of this process has or had it


def no_handle(text: str) -> KvtriageError:
    return local_error(Code.FAILED_PRECONDITION, "vmm_memory", text)


def find_allocation(driver: Driver, pointer: int) -> ExportableAllocation:
    """The allocation that holds `pointer`. Errors are lend_device_memory's."""
    with driver.in_some_context() as has_context:
        if not has_context:
            raise bad_argument("this process uses no CUDA device, so the pointer is not one to its memory")
        _check_kind(driver, pointer)
        number = driver.attribute(_BUFFER_ID, pointer)
        if not number:
            raise local_error(Code.INTERNAL, "cuda_call", "the CUDA driver does not number the allocation")
        device = driver.attribute(_DEVICE_ORDINAL, pointer) or 0
        base, size = driver.address_range(pointer)
    return ExportableAllocation(base, size, device, number)


def _check_kind(driver: Driver, pointer: int) -> None:
    """Refuses what has no handle by its kind: after the fact, the driver would only say "invalid"."""
    if driver.attribute(_IS_MANAGED, pointer):
        raise no_handle(_MANAGED_TEXT)
    if driver.attribute(_MEMORY_TYPE, pointer) != _TYPE_DEVICE:
        raise bad_argument("the pointer is not one to memory of a CUDA device")
    if driver.attribute(_IPC_CAPABLE, pointer):
        return
    raise no_handle(_POOL_TEXT if driver.attribute(_POOL, pointer) else _VMM_TEXT)
