"""The newest queries, whatever the lengths of the passes that they came in."""

from __future__ import annotations

import random

import pytest
import torch
from kvtriage.transformers.model_geometry import geometry_of
from kvtriage.transformers.query_capture import QueryCapture
from transformers import LlamaConfig

GEOMETRY = geometry_of(
    LlamaConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
)


def made(rows: int, wanted: int) -> QueryCapture:
    return QueryCapture(GEOMETRY, 2, rows, wanted, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("seed", range(4))
def test_the_newest_rows_are_there_in_order(seed: int) -> None:
    print(f"seed {seed}")
    pick = random.Random(seed)
    torch.manual_seed(seed)
    capture = made(rows=20, wanted=7)
    history = [torch.zeros(2, 0, 4, 4) for _ in range(2)]
    fresh = 0
    for _ in range(200):
        action = pick.random()
        if action < 0.1:
            capture.evicted()
            fresh = 0
        elif action < 0.2 and fresh:
            taken = pick.randint(1, fresh)
            capture.crop(taken)
            history = [rows[:, :-taken] for rows in history]
            fresh -= taken
        else:
            new = torch.randn(2, 4, pick.choice([1, 1, 1, 2, 5, 30]), 4)
            for layer in range(2):
                capture.append(layer, new + layer)
                history[layer] = torch.cat([history[layer], (new + layer).transpose(1, 2)], 1)
            fresh += new.shape[2]
        # Rows that were given up for want of room are never those that may still vote.
        assert min(fresh, 7) <= capture.fresh <= fresh or action < 0.2
        assert capture.fresh <= capture.filled <= 20
        fresh = capture.fresh
        for layer in range(2):
            expected = history[layer][:, history[layer].shape[1] - capture.filled :]
            assert torch.equal(capture.newest(layer, capture.filled), expected)


def test_the_tensor_that_the_service_is_told_of() -> None:
    capture = made(rows=20, wanted=7)
    queries = torch.randn(2, 4, 9, 4)
    for layer in range(2):
        capture.append(layer, queries * (layer + 1))
    from kvtriage import Region

    spec = capture.tensor_spec(Region(5))
    assert (spec.layers, spec.rows, spec.heads, spec.elems) == (2, 40, 4, 4)
    flat = capture.lent.tensor.flatten()
    for sequence in range(2):
        row = capture.first_row(sequence, 3)
        at = (spec.layer_stride + row * spec.row_stride + 2 * spec.head_stride + 1 * spec.elem_stride) // 4
        assert float(flat[at]) == float(2 * queries[sequence, 2, 6, 1])


def test_layers_that_scale_differently_are_refused() -> None:
    capture = made(rows=20, wanted=7)
    capture.observe_logits(0.25, 0.0)
    capture.observe_logits(0.25, 0.0)
    with pytest.raises(ValueError, match="scale their logits differently"):
        capture.observe_logits(0.25, 50.0)
    with pytest.raises(ValueError, match="scale their logits differently"):
        capture.observe_logits(0.5, 0.0)
