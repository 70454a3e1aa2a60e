"""Goes on from a reading with only the kept rows, for several policies at once.

Each policy is one entry of the batch; all are fed the same tokens. A layer's kept rows are gathered into
one buffer, padded to the longest list, so lists may differ per head and layer, which no engine's cache of
one length could hold. Positions go on counting as if nothing had been dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from kvtriage.eval.attention import forward
from kvtriage.eval.reading import Reading
from kvtriage.eval.selection import KeptRows


class Continuation:
    """Holds copies: the reading may be overwritten afterwards."""

    def __init__(self, reading: Reading, kept: Sequence[KeptRows], room: int) -> None:
        """`kept`: one entry per policy. `room`: how many tokens can be fed."""
        shape = reading.loaded.geometry
        self._model = reading.loaded.model
        self._group = reading.loaded.group
        self._first = reading.cut  # position of the first token that is fed
        self._fed = 0
        self._room = room
        self._layers = [
            _gather(reading.keys[layer], reading.values[layer], [sets[layer] for sets in kept], room)
            for layer in range(shape.layers)
        ]
        self._batch = len(kept)

    @property
    def fed(self) -> int:
        """Tokens fed so far."""
        return self._fed

    def forward(self, ids: torch.Tensor, logits_of: int) -> torch.Tensor:
        """Feeds ids [rows] to every policy, or [B, rows] -> logits [B, logits_of, V] of the newest rows."""
        ids = ids.expand(self._batch, -1) if ids.ndim == 1 else ids
        if self._fed + ids.shape[1] > self._room:
            raise ValueError(f"room for {self._room} tokens, {self._fed + ids.shape[1]} are fed")
        logits = forward(self._model, self, ids, self._first + self._fed, logits_of)
        self._fed += ids.shape[1]
        return logits

    def rewind(self, fed: int) -> None:
        """Forgets all but the first `fed` tokens that were fed."""
        if not 0 <= fed <= self._fed:
            raise ValueError(f"cannot go back to {fed} of {self._fed} tokens")
        self._fed = fed

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Attention over the kept rows and those that were fed (kvtriage.eval.attention.Tap)."""
        keys, values, held = self._layers[layer]
        batch, heads, rows, dim = query.shape
        start = keys.shape[2] - self._room + self._fed
        end = start + rows
        keys[:, :, start:end], values[:, :, start:end] = key, value
        # The query heads of a KV head are more rows of it: no key is copied for them.
        query = query.reshape(batch, heads // self._group, self._group * rows, dim)
        seen = torch.ones(rows, end, dtype=torch.bool).tril(start)
        mask = held[:, :, None, :end] & seen.repeat(self._group, 1)
        out = F.scaled_dot_product_attention(
            query, keys[:, :, :end], values[:, :, :end], attn_mask=mask, scale=scale
        )
        return out.reshape(batch, heads, rows, dim)


def _gather(
    keys: torch.Tensor, values: torch.Tensor, kept: Sequence[Sequence[torch.Tensor]], room: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of one layer: keys and values [B, Hk, longest + room, d], and which of the slots hold something."""
    heads, _, dim = keys.shape
    longest = max(len(rows) for sets in kept for rows in sets)
    shape = (len(kept), heads, longest + room)
    into_keys, into_values = keys.new_zeros(*shape, dim), values.new_zeros(*shape, dim)
    held = torch.zeros(shape, dtype=torch.bool)
    held[:, :, longest:] = True
    for entry, sets in enumerate(kept):
        for head, rows in enumerate(sets):
            into_keys[entry, head, : len(rows)] = keys[head, rows]
            into_values[entry, head, : len(rows)] = values[head, rows]
            held[entry, head, : len(rows)] = True
    return into_keys, into_values, held
