"""Memory of the client library, seen as one torch tensor: the service maps the very bytes."""

from __future__ import annotations

import math

import torch

from kvtriage import Access, DType, HostMemory, RegionSpec

DTYPES = {torch.float32: DType.F32, torch.float16: DType.F16, torch.bfloat16: DType.BF16}

# What one cudaMalloc is rounded up to: the size of a device page.
_DEVICE_PAGE = 2 << 20


def finish_writes(tensor: torch.Tensor) -> None:
    """Returns when all that was queued on the tensor's device is done: the service does not wait for it."""
    if tensor.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()


class LentTensor:
    """A contiguous tensor in a sealed memfd, or in a device allocation of its own.

    Not torch's allocator: no memory is shared with other tensors, and nothing moves or frees it while it
    is lent. The tensor keeps the memory.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        if dtype not in DTYPES:
            raise ValueError(f"{dtype} cannot be lent: one of {', '.join(map(str, DTYPES))} is needed")
        # A tensor that is made in inference mode could not be written outside of it.
        with torch.inference_mode(False):
            self.tensor = self._make(math.prod(shape), dtype, device).view(shape)
        self.dtype = DTYPES[dtype]

    def _make(self, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        size = count * dtype.itemsize
        if device.type == "cpu":
            memory = HostMemory(size)
            self._spec = memory.lend
            return torch.frombuffer(memory.buffer, dtype=dtype, count=count)
        if device.type == "cuda":
            from kvtriage.cuda import DeviceMemory

            ordinal = torch.cuda.current_device() if device.index is None else device.index
            block = DeviceMemory.create(ordinal, -(-size // _DEVICE_PAGE) * _DEVICE_PAGE)
            self._spec = block.lend
            flat = torch.as_tensor(block, device=device)[:size].view(dtype)
            flat.zero_()
            finish_writes(flat)
            return flat
        raise ValueError(f"memory of device type {device.type!r} cannot be lent")

    def lend(self, access: Access = Access.READ_WRITE) -> RegionSpec:
        """The whole memory as something to register."""
        return self._spec(access=access)
