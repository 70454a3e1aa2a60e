"""The inputs that scorers read beside the cache: queries, their moments, W_O."""

from __future__ import annotations

import torch

from kvtriage import (
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

    def __init__(self, geometry: ModelGeometry, lent: LentCache, capture: QueryCapture) -> None:
        self._geometry = geometry
        self._lent = lent
        self._capture = capture
        self._queries: Region = lent.lend(capture.lent)
        self._moments: tuple[LentTensor, LentTensor, TensorSpec, TensorSpec] | None = None
        self._projection: TensorSpec | None = None
        self._weights: list[torch.Tensor] = []

    def know_weights(self, output_projections: list[torch.Tensor]) -> None:
        """W_O of each layer [hidden, q_heads * head_dim]: copied when criticalkv first asks."""
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
            inputs.query_mean, inputs.query_covariance = self._query_moments(
                next_position, policy.protect.sinks
            )
        return inputs

    def _output_projection(self) -> TensorSpec:
        if self._projection is None:
            if not self._weights:
                raise UnsupportedModel(
                    "criticalkv reads the model's o_proj: attach the cache to the model first"
                )
            shape = self._geometry
            wide = shape.q_heads * shape.head_dim
            memory = LentTensor(
                (shape.layers, shape.hidden, wide), self._weights[0].dtype, self._weights[0].device
            )
            for layer, weight in enumerate(self._weights):
                memory.tensor[layer].copy_(weight.detach())
            region = self._lent.lend(memory)
            self._projection = dense_tensor(
                region, 0, memory.dtype, shape.layers, shape.hidden, shape.q_heads, shape.head_dim
            )
        return self._projection

    def _query_moments(self, next_position: int, sinks: int) -> tuple[TensorSpec, TensorSpec]:
        """Mean and biased covariance of the captured queries before RoPE, without those of the sinks."""
        shape = self._geometry
        if shape.rope.spec is None:
            raise UnsupportedModel(f"expected-attention has to turn queries back: {shape.rope.problem}")
        mean, covariance, mean_spec, covariance_spec = self._moment_memory()
        count = self._capture.filled
        positions = torch.arange(
            next_position - count, next_position, device=self._capture.lent.tensor.device
        )
        behind_sinks = positions >= sinks
        for layer in range(shape.layers):
            rows = self._capture.newest(layer, count)[0].transpose(0, 1)  # [q_heads, count, head_dim]
            turned = shape.turning_layers[layer]
            before = unrotate(rows, positions, shape.rope.spec) if turned else rows.float()
            before = before[:, behind_sinks]
            mean.tensor[layer] = before.mean(1)
            centred = before - before.mean(1, keepdim=True)
            # Rows of the covariance stand before heads: [head_dim, q_heads, head_dim].
            covariance.tensor[layer] = (centred.mT @ centred / centred.shape[1]).transpose(0, 1)
        return mean_spec, covariance_spec

    def _moment_memory(self) -> tuple[LentTensor, LentTensor, TensorSpec, TensorSpec]:
        if self._moments is None:
            layers, heads, dim = self._geometry.layers, self._geometry.q_heads, self._geometry.head_dim
            device = self._capture.lent.tensor.device
            mean = LentTensor((layers, heads, dim), torch.float32, device)
            covariance = LentTensor((layers, dim, heads, dim), torch.float32, device)
            specs = [
                dense_tensor(self._lent.lend(memory), 0, memory.dtype, layers, rows, heads, dim)
                for memory, rows in ((mean, 1), (covariance, dim))
            ]
            self._moments = (mean, covariance, specs[0], specs[1])
        return self._moments
