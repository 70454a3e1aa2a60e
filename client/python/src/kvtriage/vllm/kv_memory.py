"""The engine's KV memory comes from a sealed memfd, so that it can be lent."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kvtriage import HostMemory
from kvtriage.vllm.versions import UnsupportedEngine


class AllocateShared(TorchFunctionMode):
    """While it is active, the one int8 torch.zeros that vLLM makes for its KV cache is a view of a memfd.

    vLLM allocates inside what the connector's get_mem_pool_context() returns: nothing of it is replaced.
    """

    def __init__(self) -> None:
        super().__init__()
        self._memory: HostMemory | None = None

    @property
    def memory(self) -> HostMemory:
        """UnsupportedEngine when vLLM did not allocate as expected."""
        if self._memory is None:
            raise UnsupportedEngine("kvtriage: vLLM allocated no KV cache through the connector's context")
        return self._memory

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.zeros and _is_kv_cache(args, kwargs):
            if self._memory is not None:
                raise UnsupportedEngine("kvtriage: vLLM allocates more than one KV cache; one is supported")
            self._memory = HostMemory(args[0])
            return torch.frombuffer(self._memory.buffer, dtype=torch.int8)
        return func(*args, **kwargs)


def _is_kv_cache(args: Any, kwargs: dict[str, Any]) -> bool:
    on_cpu = torch.device(kwargs.get("device") or "cpu").type == "cpu"
    return len(args) == 1 and isinstance(args[0], int) and kwargs.get("dtype") is torch.int8 and on_cpu
