"""The right answer: transformers' own model over the whole text, with masks instead of a smaller cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface, AutoModelForCausalLM, DynamicCache

_kept: list[torch.Tensor | None] = [None]  # per layer: [heads, tokens], what is visible of the oldest ones


@dataclass(frozen=True)
class Compaction:
    """After `total` tokens; `tokens` [layers, heads, kept] stayed. None: the rows were lost and computed anew."""

    total: int
    tokens: np.ndarray | None


def _attend(module: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float, **_: Any) -> Any:
    q, k, v = q[0], k[0], v[0]
    total, new, group = k.shape[1], q.shape[1], q.shape[0] // k.shape[0]
    visible = torch.arange(total)[None] <= torch.arange(total - new, total)[:, None]
    visible = visible[None].repeat(q.shape[0], 1, 1)
    if _kept[0] is not None:
        of_layer = _kept[0][module.layer_idx]
        old = torch.ones(k.shape[0], total, dtype=torch.bool)
        old[:, : of_layer.shape[1]] = of_layer
        visible &= old.repeat_interleave(group, 0)[:, None]
    logits = (q @ k.repeat_interleave(group, 0).mT * scaling).masked_fill(~visible, float("-inf"))
    out = torch.softmax(logits, -1) @ v.repeat_interleave(group, 0)
    return out[None].transpose(1, 2).contiguous(), None


AttentionInterface.register("kvtriage_masked", _attend)


class MaskedReference:
    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="kvtriage_masked"
        ).eval()

    @torch.no_grad()
    def check(
        self, prompt: Sequence[int], answer: Sequence[int], compactions: Sequence[Compaction]
    ) -> tuple[int, float]:
        """How many tokens of `answer` are the greedy ones, and the smallest gap between the best two logits."""
        logits, cache = self._read(prompt)
        total, gap, known = len(prompt), float("inf"), 0
        for place, token in enumerate(answer):
            best = logits.topk(2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            if int(best.indices[0]) != token:
                return place, gap
            due = [each for each in compactions if each.total <= total]
            total += 1
            if len(due) > known and due[-1].tokens is None:
                # Rows that were computed while some were hidden are gone too.
                logits, cache = self._read([*prompt, *answer[: place + 1]])
            else:
                _kept[0] = _visible(due[-1]) if due else None
                position = torch.tensor([[total - 1]])
                token_ids = torch.tensor([[token]])
                logits = self._model(token_ids, past_key_values=cache, position_ids=position).logits[0, -1]
            known = len(due)
        return len(answer), gap

    def _read(self, text: Sequence[int]) -> tuple[torch.Tensor, DynamicCache]:
        """The whole text at once, every token seen."""
        cache, _kept[0] = DynamicCache(), None
        return self._model(torch.tensor([list(text)]), past_key_values=cache).logits[0, -1], cache


def _visible(compaction: Compaction) -> torch.Tensor | None:
    if compaction.tokens is None:
        return None
    layers, heads, _ = compaction.tokens.shape
    visible = torch.zeros(layers, heads, compaction.total, dtype=torch.bool)
    return visible.scatter_(2, torch.from_numpy(compaction.tokens).long(), True)
