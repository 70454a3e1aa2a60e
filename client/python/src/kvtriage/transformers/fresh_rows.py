"""Recomputed rows of one layer, in lent memory of their own."""

from __future__ import annotations

import torch

from kvtriage import TensorSpec
from kvtriage.transformers.lent_cache import LentCache
from kvtriage.transformers.lent_tensor import LentTensor, finish_writes


class FreshRows:
    """Room for keys and values [rows, kv_heads, head_dim] of every row of a cache of one sequence."""

    def __init__(self, lent: LentCache) -> None:
        _, _, _, heads, capacity, elems = lent.tensor.shape
        self._memory = LentTensor((2, capacity, heads, elems), lent.tensor.dtype, lent.tensor.device)
        self._region = lent.lend(self._memory)

    def keys(self, rows: torch.Tensor) -> TensorSpec:
        """Puts rows [rows, kv_heads, head_dim] there."""
        return self._put(0, rows)

    def values(self, rows: torch.Tensor) -> TensorSpec:
        """Puts rows [rows, kv_heads, head_dim] there."""
        return self._put(1, rows)

    def _put(self, plane: int, rows: torch.Tensor) -> TensorSpec:
        count, heads, elems = rows.shape
        stored = self._memory.tensor[plane]
        stored[:count].copy_(rows)
        finish_writes(stored)
        size = stored.element_size()
        return TensorSpec(
            region=self._region,
            offset=plane * stored.numel() * size,
            dtype=self._memory.dtype,
            rows=count,
            heads=heads,
            elems=elems,
            row_stride=heads * elems * size,
            head_stride=elems * size,
            elem_stride=size,
        )
