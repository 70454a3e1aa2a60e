"""The right answer, computed without a cache: one pass over all tokens, attention masked in float64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface


@dataclass
class Evictions:
    """Which tokens were evicted when. `visible` is all that the reference knows of kvtriage."""

    # After so many tokens: the tokens that stayed, by layer, sequence and KV head.
    made: list[tuple[int, list[torch.Tensor]]] = field(default_factory=list)

    def note(self, cache: Any) -> None:
        """Reads what is left in a cache that has just been compacted."""
        layers = [cache.original_positions(layer) for layer in range(cache.geometry.layers)]
        self.made.append((cache.logical_len, layers))

    def visible(self, layer: int, batch: int, heads: int, tokens: int) -> torch.Tensor:
        """Bool [batch, heads, query token, key token]."""
        token = torch.arange(tokens)
        seen = (token[None, :] <= token[:, None]).expand(batch, heads, -1, -1).clone()
        for after, layers in self.made:
            kept = layers[layer]
            for sequence in range(batch):
                for head in range(heads):
                    alive = torch.zeros(tokens, dtype=torch.bool)
                    alive[kept[sequence, head][kept[sequence, head] >= 0]] = True
                    alive[after:] = True
                    seen[sequence, head, after:] &= alive
        return seen


def watch(cache: Any, evictions: Evictions) -> None:
    """Notes every eviction that the cache makes by itself."""
    evict = cache.evict

    def noted() -> Any:
        before = cache.evictions
        outcome = evict()
        if cache.evictions > before:
            evictions.note(cache)
        return outcome

    cache.evict = noted


@contextmanager
def reference_attention(model: Any, evictions: Evictions, softcap: bool = False) -> Iterator[None]:
    """`model` attends in float64, to what `evictions` left visible."""

    def attention(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, None]:
        group = query.shape[1] // key.shape[1]
        seen = evictions.visible(module.layer_idx, query.shape[0], key.shape[1], query.shape[2])
        logits = query.double() @ key.double().repeat_interleave(group, 1).mT * kwargs["scaling"]
        if softcap:
            logits = kwargs["softcap"] * torch.tanh(logits / kwargs["softcap"])
        weights = logits.masked_fill(~seen.repeat_interleave(group, 1), -torch.inf).softmax(-1)
        output = weights @ value.double().repeat_interleave(group, 1)
        return output.to(query.dtype).transpose(1, 2).contiguous(), None

    AttentionInterface.register("reference", attention)
    before = model.config._attn_implementation
    model.config._attn_implementation = "reference"
    try:
        yield
    finally:
        model.config._attn_implementation = before


@torch.no_grad()
def reference_logits(
    model: Any, token_ids: torch.Tensor, evictions: Evictions, softcap: bool = False
) -> torch.Tensor:
    """[batch, tokens, vocabulary] of a text during which `evictions` were made."""
    with reference_attention(model, evictions, softcap):
        return model(input_ids=token_ids, use_cache=False).logits
