"""The newest queries of requests that wait for a compaction, in lent memory."""

from __future__ import annotations

import torch

from kvtriage import Access, HostMemory, Region, RegionSpec, TensorSpec, dense_tensor
from kvtriage.vllm.layout import DTYPES


class QuerySlots:
    """Queries [layers, slots * rows, q_heads, dim] after RoPE. A request has one slot, or none.

    `window` is the largest of any request. A slot is filled from its first row on and never wraps round. What one step adds is planned once (`add`)
    and copied by every layer (`copy`).
    """

    def __init__(
        self, layers: int, slots: int, window: int, q_heads: int, dim: int, dtype: torch.dtype
    ) -> None:
        self.rows = window
        self._shape = (layers, slots * self.rows, q_heads, dim)
        self._dtype = dtype
        size = layers * slots * self.rows * q_heads * dim * dtype.itemsize
        self._memory = HostMemory(size)
        self._queries = torch.frombuffer(self._memory.buffer, dtype=dtype).view(self._shape)
        self._free = list(range(slots))
        self._filled: dict[int, int] = {}
        self._sources: list[int] = []  # rows of this step's queries
        self._targets: list[int] = []  # and where they go
        self._step: tuple[torch.Tensor, torch.Tensor] | None = None

    def lend(self) -> RegionSpec:
        return self._memory.lend(access=Access.READ)

    def tensor_spec(self, region: Region) -> TensorSpec:
        layers, rows, heads, dim = self._shape
        return dense_tensor(region, 0, DTYPES[self._dtype], layers, rows, heads, dim)

    def take(self) -> int | None:
        """A slot, empty; None when all are taken."""
        if not self._free:
            return None
        slot = self._free.pop(0)
        self._filled[slot] = 0
        return slot

    def give_back(self, slot: int) -> None:
        del self._filled[slot]
        self._free.append(slot)

    def span(self, slot: int) -> tuple[int, int]:
        """First row of a slot on the tensor's row axis, and how many it holds."""
        return slot * self.rows, self._filled[slot]

    # ---- a step ------------------------------------------------------------------------------------

    def add(self, slot: int, begin: int, end: int) -> None:
        """The rows [begin, end) of this step's queries belong to the slot, behind those that it holds.

        A slot that is full starts anew: what it holds must end with the newest row of its request.
        """
        begin = max(begin, end - self.rows)
        if self._filled[slot] + end - begin > self.rows:
            self._filled[slot] = 0
        first = slot * self.rows + self._filled[slot]
        self._sources.extend(range(begin, end))
        self._targets.extend(range(first, first + end - begin))
        self._filled[slot] += end - begin

    def planned(self) -> None:
        """All slots have been added to."""
        self._step = (torch.tensor(self._sources), torch.tensor(self._targets)) if self._sources else None
        self._sources, self._targets = [], []

    def copy(self, layer: int, queries: torch.Tensor) -> None:
        """queries: [tokens of the step, q_heads, dim], as the attention of `layer` uses them."""
        if self._step is not None:
            sources, targets = self._step
            rows = queries.view(queries.shape[0], *self._shape[2:]).index_select(0, sources)
            self._queries[layer].index_copy_(0, targets, rows)
