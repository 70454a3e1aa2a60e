"""Heads that keep different numbers of rows in one cache: what a head does not use is masked."""

from __future__ import annotations

import torch


class Holes:
    """Rows between a head's own last kept row and that of the longest head, by layer."""

    def __init__(self, counts: torch.Tensor, kept: int) -> None:
        """counts: rows that each list kept [layers, batch, kv_heads]; kept: the longest list."""
        self._counts = counts
        self._kept = kept

    def mask(self, layer: int, query: torch.Tensor, rows: int, mask: torch.Tensor | None) -> torch.Tensor:
        """`mask` [batch, 1, new rows, rows] of a forward pass, with the unused rows hidden from each head.

        None (all rows are visible) becomes a bool mask; a float mask stays one.
        """
        counts = self._counts[layer][..., None]
        row = torch.arange(rows, device=counts.device)
        used = (row < counts) | (row >= self._kept)  # [batch, kv_heads, rows]
        used = used.repeat_interleave(query.shape[1] // used.shape[1], dim=1)[:, :, None]
        if mask is None:
            return used.expand(-1, -1, query.shape[2], -1)
        if mask.dtype == torch.bool:
            return mask & used
        return mask.masked_fill(~used, torch.finfo(mask.dtype).min)
