"""What dropping rows does to the attention outputs themselves.

Per layer: the retained mass, mean over rows and heads, and the pooled relative error of the outputs,
sqrt(sum ||O^ - o||^2 / sum ||o||^2). A model's figure is the mean over its layers. Rows from after the cut
see all rows before the cut and nothing else, so that every row is asked the same question.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvtriage.eval.reading import Reading
from kvtriage.eval.selection import KeptRows


@dataclass(frozen=True, slots=True)
class Fidelity:
    mass: float
    error: float


class AttentionRows:
    """Attention of `count` query rows from `first` on over the cache of a reading: a copy of its own."""

    def __init__(self, reading: Reading, first: int, count: int) -> None:
        shape, group, cut = reading.loaded.geometry, reading.loaded.group, reading.cut
        rows = torch.arange(first, first + count)
        limits = torch.clamp(rows + 1, max=cut)
        unseen = torch.arange(cut)[None] >= limits[:, None]
        self._weights, self._outputs = [], []
        self._values = reading.values[:, :, :cut].clone()
        for layer in range(shape.layers):
            query = reading.queries[layer, :, first : first + count]
            query = query.reshape(shape.kv_heads, group, count, shape.head_dim)
            logits = torch.einsum("hgrd,hnd->hgrn", query, reading.keys[layer, :, :cut]) * reading.scale
            weights = torch.softmax(logits.masked_fill(unseen, float("-inf")), -1)
            weights = weights.reshape(shape.kv_heads, group * count, cut)
            self._weights.append(weights)
            self._outputs.append(weights @ self._values[layer])

    def outcome(self, kept: KeptRows) -> Fidelity:
        """What is left when only these rows stay. A row whose mass is 0 has the output 0."""
        masses, errors = [], []
        for layer, heads in enumerate(kept):
            stays = torch.zeros(self._weights[layer].shape[0], 1, self._weights[layer].shape[2])
            for head, rows in enumerate(heads):
                stays[head, 0, rows] = 1
            weights = self._weights[layer] * stays
            mass = weights.sum(-1, keepdim=True)
            output = weights @ self._values[layer] / mass.clamp(min=torch.finfo(mass.dtype).tiny)
            true = self._outputs[layer]
            masses.append(mass.mean())
            errors.append(((output - true).square().sum() / true.square().sum()).sqrt())
        return Fidelity(float(torch.stack(masses).mean()), float(torch.stack(errors).mean()))
