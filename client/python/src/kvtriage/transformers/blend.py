"""CacheBlend: cached chunks glued together, and the tokens that differ most from a full prefill recomputed.

Source: CacheBlend (arXiv 2405.16444). The model's own layers do the work: from the check layer on they are
given the chosen rows only, and their keys and values are fused into the cache layer by layer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, CacheLayerMixin

from kvtriage import (
    DenseRows,
    DivergenceMetric,
    FuseRequest,
    KvtriageError,
    Outcome,
    PagedRows,
    RecomputeRequest,
    RecomputeResult,
    RowsOutcome,
    TensorSpec,
)
from kvtriage.transformers.attention_tap import attention_modules
from kvtriage.transformers.chunk import Chunk, glue
from kvtriage.transformers.errors import UnsupportedModel
from kvtriage.transformers.lent_tensor import LentTensor
from kvtriage.transformers.sidecar_cache import SidecarCache

logger = logging.getLogger("kvtriage.transformers")


@dataclass(frozen=True)
class Blended:
    """What became of a blend. The cache holds the rows of all tokens."""

    logits: torch.Tensor  # [vocabulary], of the last token
    token_ids: torch.Tensor  # [tokens]: the chunks and the suffix
    # None: the service was away, and everything was computed in the ordinary way.
    chosen: RecomputeResult | None


class Blender:
    """Blends chunks into a cache of one sequence. The last token, and so the answer, sees all of them.

    Layers before `check_layer` are computed for all tokens; there the rows whose values diverge most from
    the cached ones are chosen, `ratio` of the cached rows behind the first chunk (which is an exact prefix:
    its rows are right as they are). ratio 1 is a full prefill, 0 recomputes the suffix alone.

    To go on: cache.crop(-1), then `generate` with Blended.token_ids.
    """

    def __init__(
        self,
        model: Any,
        cache: SidecarCache,
        ratio: float = 0.15,
        check_layer: int = 1,
        metric: DivergenceMetric = DivergenceMetric.V_L2,
    ) -> None:
        if not 0 <= check_layer < cache.geometry.layers:
            raise ValueError(f"check_layer: one of the {cache.geometry.layers} layers")
        self.model, self.cache = model, cache
        self.ratio, self.check_layer, self.metric = ratio, check_layer, metric
        shape = cache.geometry
        tensor = cache.lent.tensor
        self._fresh = LentTensor(
            (2, cache.capacity, shape.kv_heads, shape.head_dim), tensor.dtype, tensor.device
        )
        self._region = cache.lent.lend(self._fresh)

    def visible(self, rows: torch.Tensor, limits: torch.Tensor, tokens: int) -> torch.Tensor:
        """Which keys the chosen rows see, bool [rows, tokens]: those at positions up to their own."""
        return torch.arange(tokens, device=rows.device) < limits[:, None]

    @torch.no_grad()
    def blend(self, chunks: Sequence[Chunk], suffix_ids: torch.Tensor) -> Blended:
        """Chunks, and behind them a text that was not cached ([tokens], at least one).

        A service that is away costs time only: everything is then computed by the model.
        """
        tokens = torch.cat([*(chunk.token_ids for chunk in chunks), suffix_ids])
        if len(suffix_ids) == 0 or len(tokens) > self.cache.capacity:
            raise ValueError(f"a suffix is needed, and room for {len(tokens)} rows")
        glued = glue(self.cache, chunks)
        if glued.outcome is Outcome.APPLIED:
            try:
                return self._recompute(tokens, len(tokens) - len(suffix_ids), len(chunks[0]))
            except _ServiceAway as away:
                reason: object = away
        else:
            reason = glued.error
        logger.warning("chunks could not be blended, computing all %d tokens: %s", len(tokens), reason)
        self.cache.reset()
        output = self.model(input_ids=tokens[None], past_key_values=self.cache, logits_to_keep=1)
        return Blended(output.logits[0, -1], tokens, None)

    def _recompute(self, tokens: torch.Tensor, cached: int, prefix: int) -> Blended:
        body = self.model.get_decoder()
        blending = _Pass(self, len(tokens), cached, prefix, body)
        with ExitStack() as hooks:
            for index, layer in list(enumerate(body.layers))[self.check_layer :]:
                hook = layer.register_forward_pre_hook(blending.before_layer(index), with_kwargs=True)
                hooks.callback(hook.remove)
            output = self.model(input_ids=tokens[None], past_key_values=blending.cache, logits_to_keep=1)
        self.cache.adopt(len(tokens))
        assert blending.chosen is not None
        return Blended(output.logits[0, -1], tokens, blending.chosen)

    def fresh_rows(self, plane: int, rows: torch.Tensor) -> TensorSpec:
        """Puts rows [rows, kv_heads, head_dim] into lent memory."""
        count, heads, elems = rows.shape
        stored = self._fresh.tensor[plane]
        stored[:count].copy_(rows)
        if stored.is_cuda:
            torch.cuda.current_stream(stored.device).synchronize()
        size = stored.element_size()
        return TensorSpec(
            region=self._region,
            offset=plane * stored.numel() * size,
            dtype=self._fresh.dtype,
            layers=1,
            rows=count,
            heads=heads,
            elems=elems,
            layer_stride=stored.numel() * size,
            row_stride=heads * elems * size,
            head_stride=elems * size,
            elem_stride=size,
        )


class _ServiceAway(Exception):
    """A call in the middle of a blend was not answered."""


class _Pass:
    """One forward pass of the model in which the later layers see the chosen rows only."""

    def __init__(self, blender: Blender, tokens: int, cached: int, prefix: int, body: Any) -> None:
        self._blender, self._tokens, self._cached, self._prefix = blender, tokens, cached, prefix
        self._attention = attention_modules(body)
        self._implementation = body.config._attn_implementation or "eager"
        if self._implementation not in ("eager", "sdpa"):
            raise UnsupportedModel(
                f"attn_implementation={self._implementation!r} takes no mask of its own per row"
            )
        self.chosen: RecomputeResult | None = None
        self._rows = torch.arange(tokens)
        self._mask = torch.ones(0)
        layers: list[CacheLayerMixin] = [_BlendLayer(self, index) for index in range(len(self._attention))]
        self.cache = Cache(layers=layers)

    def before_layer(self, index: int) -> Any:
        def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            hidden, *rest = args
            if index == self._blender.check_layer:
                self._choose(layer, index, hidden)
                hidden = hidden[:, self._rows]
            cos, sin = kwargs["position_embeddings"]
            chosen = {
                "attention_mask": self._mask,
                "position_embeddings": (cos[:, self._rows], sin[:, self._rows]),
                "position_ids": self._rows[None],
                "cache_position": self._rows,
            }
            return (hidden, *rest), kwargs | {name: value for name, value in chosen.items() if name in kwargs}

        return hook

    def _choose(self, layer: Any, index: int, hidden: torch.Tensor) -> None:
        shape = self._blender.cache.geometry
        values = self._attention[index].v_proj(layer.input_layernorm(hidden))
        fresh = values.view(self._tokens, shape.kv_heads, shape.head_dim)
        request = RecomputeRequest(
            fresh=DenseRows(self._blender.fresh_rows(1, fresh)),
            cached=PagedRows(self._blender.cache.lent.cache, index, [0]),
            rows=self._tokens,
            prefix=self._prefix,
            suffix=self._tokens - self._cached,
            metric=self._blender.metric,
            ratio=self._blender.ratio,
        )
        try:
            self.chosen = self._blender.cache.session.select_recompute(request)
        except KvtriageError as error:
            raise _ServiceAway(str(error)) from error
        device = hidden.device
        self._rows = torch.from_numpy(self.chosen.rows.astype("int64")).to(device)
        limits = torch.from_numpy(self.chosen.limits.astype("int64")).to(device)
        visible = self._blender.visible(self._rows, limits, self._tokens)[None, None]
        if self._implementation == "eager":
            lowest = torch.finfo(hidden.dtype).min
            visible = torch.zeros_like(visible, dtype=hidden.dtype).masked_fill(~visible, lowest)
        self._mask = visible

    def update(
        self, index: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Fresh rows [1, kv_heads, rows, head_dim] of a layer into the cache; all its rows as they are then."""
        cache = self._blender.cache
        stored = cache.lent.tensor[index, :, :, :, : self._tokens]
        if index < self._blender.check_layer:
            stored[0].copy_(keys)
            stored[1].copy_(values)
        else:
            self._fuse(index, keys, values)
        return stored[0], stored[1]

    def _fuse(self, index: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        assert self.chosen is not None
        cache = self._blender.cache
        (sequence,) = cache.book.specs(self._tokens, None, 0)
        outcome: RowsOutcome = cache.session.fuse(
            FuseRequest(
                cache=cache.lent.cache,
                layers=[index],
                sequence=sequence,
                rows=self.chosen.rows,
                keys=self._blender.fresh_rows(0, keys[0].transpose(0, 1)),
                values=self._blender.fresh_rows(1, values[0].transpose(0, 1)),
            )
        )
        if outcome.outcome is Outcome.APPLIED:
            cache.book.revised(outcome.kv_revision)
            return
        cache.abandon(outcome.quarantine)
        raise _ServiceAway(str(outcome.error))


class _BlendLayer(CacheLayerMixin):
    """What a layer of the model sees as its cache during a blend: positions from 0, rows of all tokens."""

    def __init__(self, blending: _Pass, index: int) -> None:
        super().__init__()
        self._blending, self._index = blending, index
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing: the memory is there."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._blending.update(self._index, key_states, value_states)

    def get_mask_sizes(self, query: torch.Tensor | int) -> tuple[int, int]:
        return (query if isinstance(query, int) else query.shape[0]), 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_cache_shape(self) -> int:
        return -1
