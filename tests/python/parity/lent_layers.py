"""Lends captured layers to the service and asks it which rows it would keep."""

from __future__ import annotations

import itertools
from collections.abc import Sequence as Seq
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import kvtriage
import numpy as np
import torch
from captured_layer import CapturedLayer
from kept_rows import KeptRows
from kvtriage.compress import ScoreSource

DTYPES = {
    torch.float32: kvtriage.DType.F32,
    torch.bfloat16: kvtriage.DType.BF16,
    torch.float16: kvtriage.DType.F16,
}
ALIGNMENT = 64
SEQUENCE_IDS = itertools.count(1)


class LentLayers(AbstractContextManager["LentLayers"]):
    """Copies of layers of one sequence, and of whatever else a call reads, in memory that the service maps.

    Use as a context: the memory is taken back at its end.
    """

    def __init__(
        self,
        session: kvtriage.Session,
        layers: Seq[CapturedLayer],
        num_layers: int | None = None,
        rope: kvtriage.RopeSpec | None = None,
        **extra: torch.Tensor,
    ) -> None:
        """`extra`: inputs by name, each [layers, rows, heads, elems]. `num_layers`: of the whole model."""
        self._session = session
        self.layers = list(layers)
        tensors = [t for layer in layers for t in (layer.keys, layer.values)] + list(extra.values())
        offsets = np.cumsum([0] + [-(-t.nbytes // ALIGNMENT) * ALIGNMENT for t in tensors])
        self.memory = kvtriage.HostMemory(int(offsets[-1]))
        for tensor, offset in zip(tensors, offsets):
            self.memory.array(tensor.nbytes, np.uint8, int(offset))[:] = _bytes(tensor)
        spec = kvtriage.CacheSpec(
            layers=[
                self._layer(layer, offsets[2 * i], offsets[2 * i + 1], rope) for i, layer in enumerate(layers)
            ],
            ropes=[rope] if rope else [],
            num_layers=num_layers or 1 + max(layer.module.layer_idx for layer in layers),
        )
        registered = session.register(kvtriage.Registration(regions=[self.memory.lend()], caches=[spec]))
        self._region, self.cache = registered.regions[0], registered.caches[0]
        self.inputs = {
            name: kvtriage.dense_tensor(self._region, int(offset), DTYPES[tensor.dtype], *tensor.shape)
            for (name, tensor), offset in zip(extra.items(), offsets[2 * len(self.layers) :])
        }

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.unregister([self._region], [self.cache])
        self.memory.close()

    def compress(
        self, policy: kvtriage.Policy, source: ScoreSource | None = None, **request: Any
    ) -> kvtriage.SequenceResult:
        """One call about the whole sequence; select only unless `act` says otherwise."""
        layer, rows = self.layers[0], self.layers[0].rows
        inputs = kvtriage.ScoreInputs(source or kvtriage.KeysOnly(), softmax_scale=layer.scale)
        inputs.output_projection = self.inputs.get("output_projection")
        inputs.query_mean = self.inputs.get("query_mean")
        inputs.query_covariance = self.inputs.get("query_covariance")
        sequence = kvtriage.Sequence(
            sequence_id=next(SEQUENCE_IDS),
            logical_len=rows,
            physical_len=rows,
            table=[0],
            rows_count=_rows_of(source),
            sharing=kvtriage.Sharing.ALL_PRIVATE,
            positions=0,
        )
        outcome = self._session.compress(
            kvtriage.CompressRequest(
                cache=self.cache, sequences=[sequence], policy=policy, inputs=inputs, **request
            )
        )
        return outcome.one_result()

    def kept(self, policy: kvtriage.Policy, source: ScoreSource | None = None) -> list[KeptRows]:
        """Per layer and KV head, the rows that would stay."""
        sets = self.compress(policy, source).kept_sets
        return [
            [np.asarray(sets.at(number, head)) for head in range(len(layer.keys))]
            for number, layer in enumerate(self.layers)
        ]

    def query_window(
        self, stage: kvtriage.QueryStage = kvtriage.QueryStage.AFTER_ROPE
    ) -> kvtriage.QueryWindow:
        return kvtriage.QueryWindow(self.inputs["queries"], stage)

    def column_sums(self) -> kvtriage.ColumnSums:
        return kvtriage.ColumnSums(self.inputs["sums"], kvtriage.HeadAxis.QUERY)

    def _layer(
        self, layer: CapturedLayer, k_offset: int, v_offset: int, rope: kvtriage.RopeSpec | None
    ) -> kvtriage.LayerSpec:
        region = kvtriage.Region.of_this_call(0)
        heads, rows, size = layer.keys.shape
        k, v = (
            kvtriage.contiguous_view(region, int(offset), heads, rows, size, DTYPES[layer.keys.dtype])
            for offset in (k_offset, v_offset)
        )
        return kvtriage.LayerSpec(
            layer_index=layer.module.layer_idx,
            q_heads=len(layer.queries),
            kv_heads=heads,
            k=k,
            v=v,
            rope_index=1 if rope else 0,
        )


def rows_first(heads_first: Seq[torch.Tensor]) -> torch.Tensor:
    """Stacks one [heads, rows, elems] tensor per layer to [layers, rows, heads, elems]."""
    return torch.stack([tensor.transpose(0, 1) for tensor in heads_first]).contiguous()


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().contiguous().view(torch.uint8).numpy().reshape(-1)


def _rows_of(source: ScoreSource | None) -> int:
    match source:
        case kvtriage.QueryWindow(q):
            return q.rows
        case kvtriage.ColumnSums(sums):
            return sums.rows
    return 0
