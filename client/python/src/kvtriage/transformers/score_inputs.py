"""The inputs that scorers read beside the cache: queries, their moments, W_O."""

from __future__ import annotations

import torch

from kvtriage import (
    CallOptions,
    KeysOnly,
    QueryStage,
    QueryWindow,
    Region,
    ScoreInputs,
    ScorerKind,
    TensorSpec,
    dense_tensor,
)
from kvtriage.transformers.errors import UnsupportedModel
from kvtriage.transformers.lent_cache import LentCache
from kvtriage.transformers.lent_tensor import LentTensor
from kvtriage.transformers.model_geometry import ModelGeometry
from kvtriage.transformers.query_capture import QueryCapture
from kvtriage.transformers.resolved_policy import ResolvedPolicy
from kvtriage.transformers.rope import unrotate


class ScorerInputs:
    """Makes ScoreInputs. What a scorer alone needs is lent when it is first used."""

    def __init__(
        self,
        geometry: ModelGeometry,
        lent: LentCache,
        capture: QueryCapture,
        renumber: bool,
        call: CallOptions,
    ) -> None:
        """`call`: for lending in the middle of a generation."""
        self._geometry = geometry
        self._lent = lent
        self._capture = capture
        self._renumber = renumber
        self._call = call
        self._queries: Region = lent.lend(capture.lent)
        self._moments: _Moments | None = None
        self._projection: TensorSpec | None = None
        self._weights: list[torch.Tensor] = []

    def know_weights(self, output_projections: list[torch.Tensor]) -> None:
        """W_O of each layer [hidden, q_heads * head_dim]: copied when it is first used."""
        self._weights = output_projections

    def inputs(self, policy: ResolvedPolicy, query_rows: int, next_position: int) -> ScoreInputs:
        """For a call that brings the newest `query_rows` rows of queries."""
        inputs = ScoreInputs(
            softmax_scale=self._capture.softmax_scale, logit_softcap=self._capture.logit_softcap
        )
        if query_rows:
            inputs.source = QueryWindow(self._capture.tensor_spec(self._queries), QueryStage.AFTER_ROPE)
        else:
            inputs.source = KeysOnly()
        if policy.scorer is ScorerKind.CRITICAL:
            inputs.output_projection = self._output_projection()
        if policy.scorer is ScorerKind.EXPECTED_ATTENTION:
            moments = self._query_moments(next_position, policy.protect.sinks)
            if moments is not None:
                inputs.query_mean, inputs.query_covariance = moments.mean_spec, moments.covariance_spec
        return inputs

    def _output_projection(self) -> TensorSpec:
        """Copies W_O into lent memory, once. UnsupportedModel before the cache was attached to its model."""
        if self._projection is None:
            if not self._weights:
                raise UnsupportedModel("criticalkv reads the model's o_proj: attach the cache to it first")
            shape, weights = self._geometry, self._weights
            wide = shape.q_heads * shape.head_dim
            memory = LentTensor((shape.layers, shape.hidden, wide), weights[0].dtype, weights[0].device)
            for layer, weight in enumerate(weights):
                memory.tensor[layer].copy_(weight.detach())
            region = self._lent.lend(memory, self._call)
            self._projection = dense_tensor(
                region, 0, memory.dtype, shape.layers, shape.hidden, shape.q_heads, shape.head_dim
            )
        return self._projection

    def _query_moments(self, next_position: int, sinks: int) -> _Moments | None:
        """Mean and biased covariance of the captured queries before RoPE, without those of the sinks.

        None without such queries. Where rows are renumbered, queries from before the last eviction were
        turned by positions of another count, and are left out.
        """
        rope = self._geometry.rope
        if rope.spec is None:
            raise UnsupportedModel(f"expected-attention has to turn queries back: {rope.problem}")
        count = self._capture.fresh if self._renumber else self._capture.filled
        device = self._capture.lent.tensor.device
        positions = torch.arange(next_position - count, next_position, device=device)
        behind_sinks = positions >= sinks
        if not bool(behind_sinks.any()):
            return None
        self._moments = self._moments or _Moments(self._geometry, self._lent, self._call)
        for layer, turns in enumerate(self._geometry.turning_layers):
            rows = self._capture.newest(layer, count)[0].transpose(0, 1)  # [q_heads, count, head_dim]
            before = unrotate(rows, positions, rope.spec) if turns else rows.float()
            self._moments.put(layer, before[:, behind_sinks])
        return self._moments


class _Moments:
    """Mean [layer, head, dk] and covariance [layer, dk, head, dk] in lent memory, float32."""

    def __init__(self, geometry: ModelGeometry, lent: LentCache, call: CallOptions) -> None:
        layers, heads, dim = geometry.layers, geometry.q_heads, geometry.head_dim
        device = lent.tensor.device
        self._mean = LentTensor((layers, heads, dim), torch.float32, device)
        self._covariance = LentTensor((layers, dim, heads, dim), torch.float32, device)
        self.mean_spec = dense_tensor(lent.lend(self._mean, call), 0, self._mean.dtype, layers, 1, heads, dim)
        self.covariance_spec = dense_tensor(
            lent.lend(self._covariance, call), 0, self._covariance.dtype, layers, dim, heads, dim
        )

    def put(self, layer: int, queries: torch.Tensor) -> None:
        """queries: [q_heads, rows, head_dim], float32."""
        mean = queries.mean(1, keepdim=True)
        centred = queries - mean
        self._mean.tensor[layer] = mean[:, 0]
        self._covariance.tensor[layer] = (centred.mT @ centred / centred.shape[1]).transpose(0, 1)
