"""Reads a text with full attention and keeps what the layers saw, in memory that is lent to the service."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from kvtriage import (
    Cache,
    CacheSpec,
    DType,
    HostMemory,
    LayerSpec,
    Region,
    Registration,
    Session,
    TensorSpec,
    contiguous_view,
)
from kvtriage.eval.attention import forward
from kvtriage.eval.models import LoadedModel
from kvtriage.transformers.model_geometry import ModelGeometry

PAGE = 4096
FLOAT = 4


class Reading:
    """Queries, keys and values of one text at a time, float32, after RoPE.

    queries [L, Hq, capacity, d], keys and values [L, Hk, capacity, d]; the first `length` rows count. The
    next `read` overwrites them. The first `cut` rows are the cache that policies choose from; what comes
    after it is the future, which no policy sees.
    """

    def __init__(self, loaded: LoadedModel, session: Session, capacity: int) -> None:
        self.loaded, self.session, self.capacity = loaded, session, capacity
        self.length = self.cut = 0
        self.generation = 0  # goes up with every text: the rows start anew
        self.scale = 0.0
        shape = loaded.geometry
        kv_bytes = shape.layers * shape.kv_heads * capacity * shape.head_dim * FLOAT
        q_bytes = kv_bytes * loaded.group
        size = -(-(2 * kv_bytes + q_bytes) // PAGE) * PAGE
        self._memory = HostMemory(size)
        self._offsets = {"keys": 0, "values": kv_bytes, "queries": 2 * kv_bytes}
        self.keys = self._tensor("keys", shape.kv_heads)
        self.values = self._tensor("values", shape.kv_heads)
        self.queries = self._tensor("queries", shape.q_heads)
        lent = session.register(
            Registration(
                regions=[self._memory.lend()],
                caches=[self._describe(shape)],
            )
        )
        self._region: Region = lent.regions[0]
        self.cache: Cache = lent.caches[0]

    def _tensor(self, name: str, heads: int) -> torch.Tensor:
        shape = self.loaded.geometry
        dims = (shape.layers, heads, self.capacity, shape.head_dim)
        array = self._memory.array(dims, "float32", self._offsets[name])
        return torch.from_numpy(array)

    def _describe(self, shape: ModelGeometry) -> CacheSpec:
        region = Region.of_this_call(0)
        layer_bytes = shape.kv_heads * self.capacity * shape.head_dim * FLOAT
        layers = []
        for number in range(shape.layers):
            k, v = (
                contiguous_view(
                    region,
                    self._offsets[name] + number * layer_bytes,
                    shape.kv_heads,
                    self.capacity,
                    shape.head_dim,
                    DType.F32,
                )
                for name in ("keys", "values")
            )
            layers.append(
                LayerSpec(
                    layer_index=number, q_heads=shape.q_heads, kv_heads=shape.kv_heads, k=k, v=v
                )
            )
        return CacheSpec(layers=layers, num_layers=shape.layers)

    def query_tensor(self) -> TensorSpec:
        """The queries of all rows, as an input of a call."""
        shape = self.loaded.geometry
        row = shape.head_dim * FLOAT
        return TensorSpec(
            region=self._region,
            offset=self._offsets["queries"],
            dtype=DType.F32,
            layers=shape.layers,
            rows=self.capacity,
            heads=shape.q_heads,
            elems=shape.head_dim,
            layer_stride=shape.q_heads * self.capacity * row,
            head_stride=self.capacity * row,
            row_stride=row,
            elem_stride=FLOAT,
        )

    def read(self, ids: Sequence[int], cut: int) -> torch.Tensor:
        """Forward pass over the whole text. Logits [future, V] of the rows after the cut (at least one row).

        ValueError when the text does not fit, or when there is no row on either side of the cut.
        """
        if not 0 < cut < len(ids) <= self.capacity:
            raise ValueError(f"{len(ids)} tokens cut at {cut} do not fit a capacity of {self.capacity}")
        self.length, self.cut = len(ids), cut
        self.generation += 1
        return forward(self.loaded.model, self, torch.tensor([list(ids)]), 0, len(ids) - cut)[0]

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Plain causal attention (kvtriage.eval.attention.Tap)."""
        rows = slice(0, self.length)
        self.queries[layer, :, rows], self.keys[layer, :, rows] = query[0], key[0]
        self.values[layer, :, rows] = value[0]
        self.scale = scale
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale, enable_gqa=True
        )

    def close(self) -> None:
        """Takes the memory back from the service and frees it."""
        self.session.unregister([self._region], [self.cache])
        self._memory.close()
