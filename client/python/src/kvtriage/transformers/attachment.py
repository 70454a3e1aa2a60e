"""Follows the forward passes of a model: captures their queries and compacts the cache between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kvtriage import LengthRule
from kvtriage.transformers.attention_tap import attention_implementation, attention_modules, tapped
from kvtriage.transformers.errors import UnsupportedModel
from kvtriage.transformers.model_geometry import geometry_of

if TYPE_CHECKING:
    from kvtriage.transformers.sidecar_cache import SidecarCache

# Attention implementations that take a mask which differs by head.
_MASK_PER_HEAD = frozenset({"eager", "sdpa"})


@contextmanager
def attached(cache: SidecarCache, model: Any) -> Iterator[None]:
    """Hooks on the model's body, and a tap on its attention, until the end of the block."""
    _check(cache, model)
    body = model.get_decoder()
    cache.scorer_inputs.know_weights([module.o_proj.weight for module in attention_modules(body)])
    follower = _Follower(cache)
    before = body.register_forward_pre_hook(follower.before_pass, with_kwargs=True)
    after = body.register_forward_hook(follower.after_pass, with_kwargs=True, always_call=True)
    try:
        with tapped(body, follower):
            yield
    finally:
        before.remove()
        after.remove()


def _check(cache: SidecarCache, model: Any) -> None:
    compiled = torch._dynamo.OptimizedModule
    if isinstance(model, compiled) or isinstance(model.get_decoder(), compiled):
        raise UnsupportedModel("a compiled model: the cache changes its length between two steps")
    settings = getattr(model, "generation_config", None)
    if settings is not None and (settings.num_beams or 1) > 1:
        raise UnsupportedModel(
            f"generation_config.num_beams={settings.num_beams}: beam search is not supported"
        )
    if settings is not None and settings.cache_implementation not in (None, "dynamic"):
        raise UnsupportedModel(
            f"generation_config.cache_implementation={settings.cache_implementation!r}: this cache replaces it"
        )
    if geometry_of(model.config) != cache.geometry:
        raise UnsupportedModel("the cache was made for another configuration")
    devices = {parameter.device for parameter in model.parameters()}
    if devices != {cache.lent.tensor.device}:
        raise UnsupportedModel(
            f"the cache is on {cache.lent.tensor.device}, the model on {sorted(map(str, devices))}"
        )
    if model.dtype != cache.lent.tensor.dtype:
        raise UnsupportedModel(f"the model is in {model.dtype}, the cache in {cache.lent.tensor.dtype}")
    implementation = attention_implementation(model.get_decoder())
    if cache.lengths is not LengthRule.ONE and implementation not in _MASK_PER_HEAD:
        raise UnsupportedModel(
            f"attn_implementation={implementation!r} has no mask per head: lengths must be ONE"
        )


class _Follower:
    """One forward pass after the other."""

    def __init__(self, cache: SidecarCache) -> None:
        self._cache = cache

    def before_pass(self, body: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._is_ours(kwargs):
            return None
        if kwargs.get("use_cache") is False:
            raise ValueError("use_cache=False would feed the whole text again at every step")
        new_tokens = _new_tokens(args, kwargs)
        mask: Any = kwargs.get("attention_mask")
        padded = new_tokens > 1 and _is_padded(mask)
        if padded and self._cache.dropped and mask.ndim == 2:
            raise ValueError(
                "attention_mask hides tokens by row, and rows of this cache have moved: reset it first"
            )
        self._cache.before_pass(new_tokens, padded)
        return (args, self._renumbered(kwargs)) if self._cache.renumber else None

    def after_pass(self, body: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._is_ours(kwargs) and self._cache.in_pass:
            self._cache.after_pass(_new_tokens(args, kwargs), failed=output is None)

    def _is_ours(self, kwargs: dict[str, Any]) -> bool:
        """`cache` is the name that later versions of transformers give to past_key_values."""
        return kwargs.get("past_key_values") is self._cache or kwargs.get("cache") is self._cache

    def before_attention(
        self,
        layer: int,
        query: torch.Tensor,
        mask: torch.Tensor | None,
        softmax_scale: float,
        logit_softcap: float,
    ) -> torch.Tensor | None:
        if not self._cache.in_pass:
            return mask
        self._cache.capture.observe_logits(softmax_scale, logit_softcap)
        self._cache.capture.append(layer, query)
        holes = self._cache.holes
        return mask if holes is None else holes.mask(layer, query, self._cache.keys(layer).shape[-2], mask)

    def _renumbered(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Positions that were counted before an eviction renumbered the rows, counted from now."""
        names = [name for name in ("cache_position", "position_ids") if kwargs.get(name) is not None]
        next_position = self._cache.get_seq_length()
        return kwargs | {name: kwargs[name] + (next_position - kwargs[name].min()) for name in names}


def _new_tokens(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    tokens = kwargs.get("input_ids")
    if tokens is None:
        tokens = kwargs.get("inputs_embeds")
    return (args[0] if tokens is None else tokens).shape[1]


def _is_padded(mask: Any) -> bool:
    """Whether some token is masked. A mask that the caller has built himself may hide anything."""
    if mask is None:
        return False
    if not isinstance(mask, torch.Tensor) or mask.ndim != 2:
        return True
    return not bool(mask.all())
