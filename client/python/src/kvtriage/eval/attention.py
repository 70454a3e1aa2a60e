"""One attention function for transformers that hands every layer's queries, keys and values to a tap.

The model does everything else as always, rotation included. Registered under one name; which tap is in
charge is an argument of the forward pass, so models may run side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from transformers import AttentionInterface

NAME = "kvtriage_eval"


class Tap(Protocol):
    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """query [B, Hq, rows, d], key and value [B, Hk, rows, d] of the new rows -> [B, Hq, rows, d]."""
        ...


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,  # kvpress wraps whatever is registered, and hands this on by place
    *,
    scaling: float,
    attention_tap: Tap,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    out = attention_tap.attend(module.layer_idx, query, key, value, scaling)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _attention)


@contextmanager
def tapped(model: Any) -> Iterator[None]:
    """The model attends through taps inside, and as before afterwards."""
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@torch.inference_mode()
def forward(model: Any, tap: Tap, ids: torch.Tensor, first_position: int, logits_of: int) -> torch.Tensor:
    """ids [B, rows] at positions from `first_position` on -> logits [B, logits_of, V] of the newest rows."""
    positions = torch.arange(first_position, first_position + ids.shape[1])[None].expand_as(ids)
    with tapped(model):
        answer = model(
            input_ids=ids,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=logits_of,
            attention_tap=tap,
        )
    logits: torch.Tensor = answer.logits
    return logits
