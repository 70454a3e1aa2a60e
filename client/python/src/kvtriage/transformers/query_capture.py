"""The newest queries of every layer, after RoPE, kept in lent memory for the scorers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvtriage import Region, TensorSpec
from kvtriage.transformers.lent_tensor import LentTensor
from kvtriage.transformers.model_geometry import ModelGeometry


@dataclass(frozen=True)
class CapturedQueries:
    """A copy of what a QueryCapture held: queries [layers, batch, rows, q_heads, head_dim]."""

    queries: torch.Tensor
    fresh: int
    softmax_scale: float
    logit_softcap: float


class QueryCapture:
    """Queries [layers, batch, rows, q_heads, head_dim], in time order and never wrapped round.

    Rows are appended by every layer of a forward pass. When the space is used up, the newest rows that may
    still vote move to the front: one copy every `rows - wanted` steps. `fresh` counts the rows since the
    last eviction: older queries belong to a cache that is gone, and only statistics may use them.
    """

    def __init__(
        self,
        geometry: ModelGeometry,
        batch: int,
        rows: int,
        wanted: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Room for `rows` rows, of which the newest `wanted` <= rows are never given up."""
        shape = (geometry.layers, batch, rows, geometry.q_heads, geometry.head_dim)
        self.lent = LentTensor(shape, dtype, device)
        self.rows = rows
        self.wanted = wanted
        self.softmax_scale = 0.0
        self.logit_softcap = 0.0
        self._filled = [0] * geometry.layers
        self._fresh = [0] * geometry.layers

    @property
    def filled(self) -> int:
        """Rows held now."""
        return self._filled[-1]

    @property
    def fresh(self) -> int:
        """Rows held that came since the last eviction."""
        return self._fresh[-1]

    def append(self, layer: int, queries: torch.Tensor) -> None:
        """Takes [batch, q_heads, new rows, head_dim] as the attention of `layer` is about to use them."""
        rows = queries.transpose(1, 2)[:, -self.rows :]
        new = rows.shape[1]
        stored = self.lent.tensor[layer]
        filled = self._filled[layer]
        if filled + new > self.rows:
            filled = self._give_up(layer, min(self._fresh[layer], self.wanted, self.rows - new))
        stored[:, filled : filled + new].copy_(rows)
        self._filled[layer] = filled + new
        self._fresh[layer] = min(self._fresh[layer] + new, filled + new)

    def _give_up(self, layer: int, keep: int) -> int:
        stored = self.lent.tensor[layer]
        filled = self._filled[layer]
        if keep:
            stored[:, :keep].copy_(stored[:, filled - keep : filled].clone())
        return keep

    def observe_logits(self, softmax_scale: float, logit_softcap: float) -> None:
        """What the model's attention does to its logits, as it was called. One for all layers."""
        if self.softmax_scale not in (0.0, softmax_scale) or (
            self.softmax_scale and self.logit_softcap != logit_softcap
        ):
            raise ValueError("the layers of this model scale their logits differently: not supported")
        self.softmax_scale, self.logit_softcap = softmax_scale, logit_softcap

    def evicted(self) -> None:
        """The rows that came so far belong to the past."""
        self._fresh = [0] * len(self._fresh)

    def crop(self, rows: int) -> None:
        """The newest `rows` tokens were taken back."""
        self._filled = [max(0, filled - rows) for filled in self._filled]
        self._fresh = [max(0, fresh - rows) for fresh in self._fresh]

    def clear(self) -> None:
        self._filled = [0] * len(self._filled)
        self._fresh = [0] * len(self._fresh)

    def newest(self, layer: int, count: int) -> torch.Tensor:
        """A view [batch, count, q_heads, head_dim] of the newest rows."""
        filled = self._filled[layer]
        return self.lent.tensor[layer][:, filled - count : filled]

    def first_row(self, sequence: int, count: int) -> int:
        """Where the newest `count` rows of a sequence begin on the row axis of `tensor_spec`."""
        return sequence * self.rows + self.filled - count

    def tensor_spec(self, region: Region) -> TensorSpec:
        """The whole memory; the row axis runs over the sequences of the batch, `rows` for each."""
        layers, batch, rows, heads, elems = self.lent.tensor.shape
        strides = [stride * self.lent.tensor.element_size() for stride in self.lent.tensor.stride()]
        return TensorSpec(
            region=region,
            dtype=self.lent.dtype,
            layers=layers,
            rows=batch * rows,
            heads=heads,
            elems=elems,
            layer_stride=strides[0],
            row_stride=strides[2],
            head_stride=strides[3],
            elem_stride=strides[4],
        )

    def snapshot(self) -> CapturedQueries:
        held = self.lent.tensor[:, :, : self.filled].clone()
        return CapturedQueries(held, self.fresh, self.softmax_scale, self.logit_softcap)

    def restore(self, captured: CapturedQueries) -> None:
        layers, _, rows = captured.queries.shape[:3]
        self.lent.tensor[:, :, :rows].copy_(captured.queries)
        self._filled, self._fresh = [rows] * layers, [captured.fresh] * layers
        self.softmax_scale, self.logit_softcap = captured.softmax_scale, captured.logit_softcap
