"""A look at what a model's attention is called with, through the attention interface of transformers.

While a tap is in place, the model's attention implementation `X` is the registered name `kvtriage|X`: a
function that shows its arguments to the tap and calls `X`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kvtriage.transformers.errors import UnsupportedModel

_PREFIX = "kvtriage|"

# Implementations that leave the `softcap` they are given out of account.
_WITHOUT_SOFTCAP = frozenset({"sdpa"})


class AttentionTap(Protocol):
    """Sees each attention of a forward pass, after RoPE and after the cache was updated."""

    def before_attention(
        self,
        layer: int,
        query: torch.Tensor,  # [batch, q_heads, new rows, head_dim]
        mask: torch.Tensor | None,
        softmax_scale: float,
        logit_softcap: float,  # 0: the logits are not capped
    ) -> torch.Tensor | None:
        """The mask to go on with."""
        ...


_TAPS: weakref.WeakKeyDictionary[nn.Module, AttentionTap] = weakref.WeakKeyDictionary()


def attention_modules(body: nn.Module) -> list[Any]:
    """The attention modules of a decoder, by layer. UnsupportedModel when they have not the usual form."""
    found: list[Any] = [
        module
        for module in body.modules()
        if isinstance(getattr(module, "layer_idx", None), int) and hasattr(module, "o_proj")
    ]
    if [module.layer_idx for module in found] != list(range(len(found))) or not found:
        raise UnsupportedModel("the attention modules of this model (layer_idx, o_proj) were not found")
    return found


def attention_implementation(body: Any) -> str:
    """The name of the model's attention implementation, tapped or not."""
    name: str = body.config._attn_implementation or "eager"
    return name.removeprefix(_PREFIX)


@contextmanager
def tapped(body: Any, tap: AttentionTap) -> Iterator[None]:
    """Shows every attention of `body` to the tap. One tap per model at a time."""
    modules = attention_modules(body)
    if any(module in _TAPS for module in modules):
        raise RuntimeError("a cache is attached to this model already")
    configs = {id(config): config for config in [body.config, *(module.config for module in modules)]}
    before = {key: config._attn_implementation for key, config in configs.items()}
    try:
        for key, config in configs.items():
            config._attn_implementation = _register(before[key] or "eager")
        _TAPS.update({module: tap for module in modules})
        yield
    finally:
        for module in modules:
            _TAPS.pop(module, None)
        for key, config in configs.items():
            config._attn_implementation = before[key]


def _register(implementation: str) -> str:
    name = _PREFIX + implementation
    if name not in ALL_ATTENTION_FUNCTIONS:
        AttentionInterface.register(name, _shown_to_tap(implementation))
        if implementation in ALL_MASK_ATTENTION_FUNCTIONS:
            AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[implementation])
    return name


def _shown_to_tap(implementation: str) -> Callable[..., Any]:
    def attention(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,  # kvpress wraps whatever is registered, and hands this on by place
        **kwargs: Any,
    ) -> Any:
        tap = _TAPS.get(module)
        if tap is not None:
            scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
            softcap = 0.0 if implementation in _WITHOUT_SOFTCAP else kwargs.get("softcap") or 0.0
            attention_mask = tap.before_attention(module.layer_idx, query, attention_mask, scale, softcap)
        attend = _implementation(implementation, module)
        return attend(module, query, key, value, attention_mask, dropout=dropout, **kwargs)

    return attention


def _implementation(name: str, module: nn.Module) -> Callable[..., Any]:
    if name == "eager":  # the one implementation that every model file has of its own
        return sys.modules[type(module).__module__].eager_attention_forward
    return ALL_ATTENTION_FUNCTIONS[name]
