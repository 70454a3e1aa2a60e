"""Texts whose keys and values were computed alone, to be glued together later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import DynamicCache

from kvtriage import AngleMode, InPlace, Outcome, RerotateRequest, RowsOutcome
from kvtriage.transformers.lent_tensor import finish_writes

if TYPE_CHECKING:
    from kvtriage.transformers.sidecar_cache import SidecarCache


@dataclass(frozen=True)
class Chunk:
    """A text and its rows, as if it began at position 0."""

    token_ids: torch.Tensor  # [rows]
    rows: torch.Tensor  # [layers, 2, kv_heads, rows, head_dim]

    def __len__(self) -> int:
        return self.rows.shape[-2]


@torch.no_grad()
def prefill_chunk(model: Any, token_ids: torch.Tensor) -> Chunk:
    """Computes a chunk alone. token_ids: [rows]."""
    cache = DynamicCache()
    model.get_decoder()(input_ids=token_ids[None], past_key_values=cache, use_cache=True)
    layers: Any = cache.layers
    return Chunk(token_ids, torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in layers]))


def glue(cache: SidecarCache, chunks: Sequence[Chunk]) -> RowsOutcome:
    """Lays the chunks' rows one after the other into an empty cache, keys turned to their new positions.

    That is plain reuse: `generate` can go on from here, and no token has seen another chunk. On any outcome
    but APPLIED the cache is empty.
    """
    if cache.batch != 1:
        raise ValueError("chunks are glued into a cache of one sequence")
    cache.reset()
    old: list[int] = []
    for chunk in chunks:
        end = len(old) + len(chunk)
        if end > cache.capacity:
            raise ValueError(f"{end} rows do not fit the capacity of {cache.capacity}")
        cache.lent.tensor[:, :, 0, :, len(old) : end].copy_(chunk.rows)
        old.extend(range(len(chunk)))
    cache.adopt(len(old))
    (sequence,) = cache.book.specs(len(old), None, 0)
    sequence.positions = old
    finish_writes(cache.lent.tensor)
    outcome = cache.session.rerotate(
        RerotateRequest(
            cache=cache.lent.cache,
            sequence=sequence,
            first_row=0,
            rows=len(old),
            new_positions=0,
            angles=AngleMode.FP32_TABLE,
            act=InPlace(),
        )
    )
    if outcome.outcome is Outcome.APPLIED:
        cache.book.revised(outcome.kv_revision)
    else:
        cache.abandon(outcome.quarantine)
    return outcome
