"""One forward pass of a model in which its later layers see chosen rows only."""

from __future__ import annotations

from collections.abc import Callable
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
)
from kvtriage.transformers.attention_tap import attention_implementation, attention_modules
from kvtriage.transformers.cache_contents import CacheContents
from kvtriage.transformers.errors import UnsupportedModel
from kvtriage.transformers.fresh_rows import FreshRows

# Attention implementations that take any mask.
_ANY_MASK = frozenset({"eager", "sdpa"})

# Which keys chosen rows see, bool [rows, tokens], from their row numbers, their limits and the tokens.
Visible = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


class ServiceAway(Exception):
    """A call in the middle of a blend brought nothing. What is in the cache is not to be used."""


@dataclass(frozen=True)
class BlendPlan:
    """tokens: of the whole text; the first `cached` have rows in the cache, the first `prefix` right ones."""

    tokens: int
    cached: int
    prefix: int
    check_layer: int
    ratio: float
    metric: DivergenceMetric


class BlendPass:
    """`cache_view` is the past_key_values of the pass, `before_layer` a forward pre-hook of each later layer.

    Layers before the check layer are computed for all tokens. At the check layer values are computed for
    all of them, rows are chosen, and the chosen ones go on alone; their keys and values are fused into the
    cache, layer by layer, and they attend to all of its rows. ServiceAway ends the pass.
    """

    def __init__(
        self, body: Any, cache: CacheContents, fresh: FreshRows, plan: BlendPlan, visible: Visible
    ) -> None:
        self._cache, self._fresh, self._plan, self._visible = cache, fresh, plan, visible
        self._attention = attention_modules(body)
        if not hasattr(self._attention[0], "v_proj") or not hasattr(body.layers[0], "input_layernorm"):
            raise UnsupportedModel(
                "a layer's values are made by other modules than input_layernorm and v_proj"
            )
        self._implementation = attention_implementation(body)
        if self._implementation not in _ANY_MASK:
            raise UnsupportedModel(f"attn_implementation={self._implementation!r} takes no mask of our own")
        self.chosen: RecomputeResult | None = None
        self._rows = torch.arange(plan.tokens)
        self._mask = torch.ones(0)
        layers: list[CacheLayerMixin] = [_LayerView(self, index) for index in range(len(self._attention))]
        self.cache_view = Cache(layers=layers)

    def before_layer(self, index: int) -> Any:
        def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            hidden, *rest = args
            if index == self._plan.check_layer:
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
        """Compares the values that the check layer makes of `hidden` [1, tokens, hidden] with the cached ones."""
        plan, shape = self._plan, self._cache.geometry
        values = self._attention[index].v_proj(layer.input_layernorm(hidden))
        request = RecomputeRequest(
            fresh=DenseRows(self._fresh.values(values.view(plan.tokens, shape.kv_heads, shape.head_dim))),
            cached=PagedRows(self._cache.lent.cache, index, [0]),
            rows=plan.tokens,
            prefix=plan.prefix,
            suffix=plan.tokens - plan.cached,
            metric=plan.metric,
            ratio=plan.ratio,
        )
        try:
            self.chosen = self._cache.session.select_recompute(request)
        except KvtriageError as error:
            raise ServiceAway(str(error)) from error
        self._rows = torch.from_numpy(self.chosen.rows.astype("int64")).to(hidden.device)
        limits = torch.from_numpy(self.chosen.limits.astype("int64")).to(hidden.device)
        mask = self._visible(self._rows, limits, plan.tokens)[None, None]
        if self._implementation == "eager":  # which adds its mask to the logits
            lowest = torch.finfo(hidden.dtype).min
            mask = torch.zeros_like(mask, dtype=hidden.dtype).masked_fill(~mask, lowest)
        self._mask = mask

    def update(
        self, index: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Fresh rows [1, kv_heads, rows, head_dim] of a layer into the cache; all its rows as they are then."""
        stored = self._cache.lent.tensor[index, :, :, :, : self._plan.tokens]
        if index < self._plan.check_layer:
            stored[0].copy_(keys)
            stored[1].copy_(values)
        else:
            self._fuse(index, keys, values)
        return stored[0], stored[1]

    def _fuse(self, index: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        assert self.chosen is not None
        book = self._cache.book
        (sequence,) = book.specs(self._plan.tokens, None, 0)
        outcome = self._cache.session.fuse(
            FuseRequest(
                cache=self._cache.lent.cache,
                layers=[index],
                sequence=sequence,
                rows=self.chosen.rows,
                keys=self._fresh.keys(keys[0].transpose(0, 1)),
                values=self._fresh.values(values[0].transpose(0, 1)),
            )
        )
        if outcome.outcome is not Outcome.APPLIED:
            self._cache.abandon(outcome.quarantine)
            raise ServiceAway(str(outcome.error))
        book.revised(outcome.kv_revision)


class _LayerView(CacheLayerMixin):
    """What a layer of the model sees as its cache during the pass: positions from 0, rows of all tokens."""

    def __init__(self, blending: BlendPass, index: int) -> None:
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

    def get_max_length(self) -> int:
        return -1
