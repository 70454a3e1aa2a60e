"""kvpress wraps every registered attention function when it is imported: what kvtriage has registered by
then goes on working."""

from __future__ import annotations

import kvtriage
import models
import torch
from kvpress.attention_patch import patch_attention_functions
from kvtriage.eval.attention import forward
from kvtriage.transformers import SidecarCache


class Looking:
    """The plainest tap of the eval: it only attends."""

    def attend(
        self, _layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale, enable_gqa=True
        )


def test_both_taps_after_kvpress_was_imported(session: kvtriage.Session) -> None:
    model, ids = models.random_llama(*models.SHAPES["gqa"]), models.random_ids(50)[None]

    def logits_of_each_tap() -> list[torch.Tensor]:
        cache = SidecarCache(model, session, capacity=64)
        with torch.no_grad(), cache.attach(model):
            adapted = model(ids, past_key_values=cache).logits[0, -1]
        return [adapted, forward(model, Looking(), ids, 0, 1)[0, 0]]

    before = logits_of_each_tap()
    patch_attention_functions()  # what the import of kvpress does
    after = logits_of_each_tap()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert torch.allclose(before[0], before[1], atol=1e-4)
