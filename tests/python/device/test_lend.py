"""What is found about a pointer, and what is refused before anything is sent."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from kvtriage import Access, Code, KvtriageError
from kvtriage.cuda import DeviceMemory, lend_device_memory, lend_tensor, list_cuda_devices
from stand_in import StandIn

UUID_1 = "GPU-6b767472-6961-6765-2d66-616b652d6401"


def counting(size: int) -> np.ndarray:
    return (np.arange(size) * 7 + 3).astype(np.uint8)


class Tensor:
    """Says where it lies as torch and CuPy do."""

    def __init__(self, pointer: int, shape: tuple[int, ...], typestr: str, **more: Any) -> None:
        data = (pointer, more.pop("readonly", False))
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": data,
            "version": 3,
            **more,
        }


def refusal(call: Any, *arguments: Any) -> KvtriageError:
    with pytest.raises(KvtriageError) as raised:
        call(*arguments)
    assert raised.value.unharmed and not raised.value.from_service
    return raised.value


def test_devices_are_listed_by_uuid(stand_in: StandIn) -> None:
    devices = list_cuda_devices()
    assert (len(devices), devices[1].uuid, devices[1].name) == (2, UUID_1, "fake device 1")
    stand_in.script("devices=0")
    assert refusal(list_cuda_devices).reason == "no_device"
    assert refusal(DeviceMemory.create, 0, 64).code is Code.UNAVAILABLE


# An engine's tensor lies somewhere in an allocation: the driver says where.
def test_base_offset_and_size_of_a_pointer(stand_in: StandIn) -> None:
    memory = DeviceMemory.create(1, 5000)
    content = counting(5000)
    memory.write(0, content)
    spec = lend_device_memory(memory.pointer + 1234, 700, Access.READ, 9)
    assert (spec.fd, spec.offset, spec.size, spec.access, spec.tag) == (-1, 1234, 700, Access.READ, 9)
    assert spec.cuda is not None and spec.fingerprint is not None
    assert (spec.cuda.bytes, spec.cuda.device_uuid, len(spec.cuda.handle)) == (5000, UUID_1, 64)
    assert (spec.fingerprint.offset, spec.fingerprint.expected) == (0, content[1234:1298].tobytes())
    assert spec.owner is None, "the memory is its owner's"
    # The handle is the allocation's, wherever the pointer was; a short region has a short fingerprint.
    one = memory.lend(0, 1)
    assert one.cuda is not None and one.fingerprint is not None
    assert one.cuda.handle == spec.cuda.handle and len(one.fingerprint.expected) == 1
    assert memory.read(4990).tolist() == content[4990:].tolist()


def test_a_tensor_says_where_it_lies() -> None:
    memory = DeviceMemory.create(0, 4096)
    at = memory.pointer + 256
    dense = Tensor(at, (2, 8, 4), "<f2", strides=None)
    spec = lend_tensor(dense, tag=3)
    assert (spec.offset, spec.size, spec.tag) == (256, 128, 3)
    assert spec.owner is dense, "kept as long as it is lent"
    # Every second row of 64 bytes; then the same from its last element backwards.
    assert lend_tensor(Tensor(at, (4, 16), "<f4", strides=(128, 4))).size == 3 * 128 + 64
    back = lend_tensor(Tensor(at + 3 * 128 + 60, (4, 16), "<f4", strides=(-128, -4)))
    assert (back.offset, back.size) == (256, 3 * 128 + 64)
    assert lend_tensor(Tensor(at, (), "<V2")).size == 2
    assert lend_tensor(memory).size == 4096


def test_what_is_no_tensor_of_a_device_is_refused() -> None:
    memory = DeviceMemory.create(0, 4096)
    readonly = Tensor(memory.pointer, (16,), "|u1", readonly=True)
    assert refusal(lend_tensor, readonly).field == "access"
    assert lend_tensor(readonly, Access.READ).size == 16
    assert refusal(lend_tensor, Tensor(memory.pointer, (0, 4), "|u1")).reason == "bad_argument"
    assert "view(torch.uint8)" in refusal(lend_tensor, np.zeros(4)).message


@pytest.mark.parametrize(
    ("kind", "setting"),
    [("vmm", "expandable_segments"), ("pool", "cudaMallocAsync"), ("managed", "cudaMallocManaged")],
)
def test_kinds_without_a_handle_are_named_with_the_setting_to_change(
    stand_in: StandIn, kind: str, setting: str
) -> None:
    stand_in.script(f"cudaMalloc@1:kind={kind}")
    memory = DeviceMemory.create(0, 4096)
    error = refusal(memory.lend, 0, 64)
    assert (error.code, error.reason) == (Code.FAILED_PRECONDITION, "vmm_memory")
    assert setting in error.message
    assert stand_in.count("cudaIpcGetMemHandle") == 0, "the driver is not tried"


def test_what_is_not_device_memory_is_refused() -> None:
    memory = DeviceMemory.create(0, 100)
    on_host = np.zeros(64, np.uint8)
    assert refusal(lend_device_memory, on_host.ctypes.data, 64).reason == "bad_argument"
    assert refusal(lend_device_memory, memory.pointer, 0).reason == "bad_argument"
    for offset, size in ((0, 101), (101, 0), (-1, 10), (50, -1)):
        error = refusal(memory.lend, offset, size)
        assert (error.code, error.reason) == (Code.OUT_OF_RANGE, "bad_argument")
        assert refusal(memory.read, offset, size).code is Code.OUT_OF_RANGE
    assert refusal(memory.write, 1, bytes(100)).code is Code.OUT_OF_RANGE
    assert refusal(DeviceMemory.create, 0, 0).reason == "bad_argument"


def test_a_region_ends_in_its_allocation(stand_in: StandIn) -> None:
    memory = DeviceMemory.create(0, 100)  # a real device rounds up
    assert refusal(lend_device_memory, memory.pointer + 1, 100).reason == "bad_argument"


def test_errors_of_cuda_are_numbers(stand_in: StandIn) -> None:
    stand_in.script("memory=4096")
    assert refusal(DeviceMemory.create, 0, 1 << 20).reason == "device_memory"
    stand_in.script("cudaIpcGetMemHandle@1:error=801 cudaIpcGetMemHandle@2:error=999")
    memory = DeviceMemory.create(0, 64)
    assert "WSL2" in refusal(memory.lend).message
    unknown = refusal(memory.lend)
    assert (unknown.code, unknown.reason) == (Code.INTERNAL, "cuda_call") and "999" in unknown.message


# A new allocation may get the handle bytes of a freed one: the generation tells them apart.
def test_every_allocation_has_a_generation_of_its_own(stand_in: StandIn) -> None:
    memory = DeviceMemory.create(0, 4096)
    first, again = memory.lend(0, 64).cuda, memory.lend(128, 64).cuda
    assert first is not None and again is not None and first.generation == again.generation > 0
    del memory
    gc.collect()
    assert stand_in.count("cudaFree") == 1
    second = DeviceMemory.create(0, 4096).lend(0, 64).cuda
    assert second is not None
    assert second.handle == first.handle, "the stand-in makes the trap on purpose"
    assert second.generation != first.generation


def test_any_thread_may_call_and_keeps_its_context() -> None:
    """The stand-in ends a process whose thread makes a call of a device without one."""
    memory = DeviceMemory.create(len(list_cuda_devices()) - 1, 4096)
    sizes = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: sizes.append(memory.lend(64).size))
        thread.start()
        thread.join()
    assert sizes == [4032, 4032]


def test_memory_goes_with_its_last_reference(stand_in: StandIn) -> None:
    memory = DeviceMemory.create(0, 4096)
    spec = memory.lend()
    del memory
    gc.collect()
    assert stand_in.count("cudaFree") == 0
    del spec
    gc.collect()
    assert (stand_in.count("cudaFree"), stand_in.count("allocations")) == (1, 0)
