"""What a press sees of a layer, taken from one forward pass of a model: the inputs of every comparison."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, PreTrainedModel
from transformers.masking_utils import eager_mask
from transformers.models.llama.modeling_llama import repeat_kv

RECORDING = "kvtriage_parity_recording"


@dataclass
class CapturedLayer:
    """One attention layer of one sequence after its prefill. Tensors have no batch axis but `hidden`."""

    module: nn.Module
    hidden: torch.Tensor  # [1, N, hidden size]: input of the attention block
    keys: torch.Tensor  # [Hk, N, d], after RoPE
    values: torch.Tensor  # [Hk, N, d]
    queries: torch.Tensor  # [Hq, N, d], after RoPE: what attention was computed from
    queries_before_rope: torch.Tensor  # [Hq, N, d]
    attentions: torch.Tensor  # [Hq, N, N] float32
    kwargs: dict[str, Any] = field(repr=False)  # of the attention block's forward

    @property
    def rows(self) -> int:
        return self.keys.shape[1]

    @property
    def scale(self) -> float:
        return float(self.module.scaling)

    def output_projection(self) -> torch.Tensor:
        """W_O, [hidden, Hq * d]."""
        return self.module.o_proj.weight.detach()

    def press_arguments(self, with_attentions: bool = False) -> tuple[Any, ...]:
        """Arguments of BasePress.compress and ScorerPress.score; copies, so that a press may write."""
        attentions = self.attentions[None].clone() if with_attentions else None
        return (
            self.module,
            self.hidden,
            self.keys[None].clone(),
            self.values[None].clone(),
            attentions,
            self.kwargs,
        )


def _recording_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    _dropout: float = 0.0,  # kvpress hands it on by place
    scaling: float = 1.0,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention written out, so that a press that wants the weights has them. Keeps the queries."""
    groups = query.shape[1] // key.shape[1]
    logits = (query @ repeat_kv(key, groups).transpose(2, 3)).float() * scaling
    if attention_mask is not None:
        logits = logits + attention_mask[..., : key.shape[2]].float()
    weights = torch.softmax(logits, dim=-1)
    module.recorded_queries = query.detach()[0]
    output = weights.to(value.dtype) @ repeat_kv(value, groups)
    return output.transpose(1, 2).contiguous(), weights


AttentionInterface.register(RECORDING, _recording_attention)
AttentionMaskInterface.register(RECORDING, eager_mask)


@contextmanager
def _hooks(blocks: list[nn.Module], seen: dict[int, dict[str, Any]]) -> Iterator[None]:
    """Notes, by layer number, what goes into and comes out of each attention block."""
    handles = []

    def note_block(module: nn.Module, _args: Any, kwargs: dict[str, Any], output: Any) -> None:
        seen[module.layer_idx].update(
            hidden=kwargs["hidden_states"].detach(), kwargs=kwargs, attentions=output[1].detach()[0]
        )

    def note_queries(layer: int) -> Any:
        def note(_module: nn.Module, _args: Any, output: torch.Tensor) -> None:
            seen[layer]["before_rope"] = output.detach()[0]

        return note

    try:
        for block in blocks:
            seen[block.layer_idx] = {}
            handles.append(block.register_forward_hook(note_block, with_kwargs=True))
            last_before_rope = getattr(block, "q_norm", None) or block.q_proj
            handles.append(last_before_rope.register_forward_hook(note_queries(block.layer_idx)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def capture(model: PreTrainedModel, ids: torch.Tensor, layers: list[int]) -> list[CapturedLayer]:
    """Runs `ids` [N] through the model, which stays as it was but for its attention implementation."""
    blocks = [model.model.layers[layer].self_attn for layer in layers]
    model.set_attn_implementation(RECORDING)
    cache = DynamicCache()
    seen: dict[int, dict[str, Any]] = {}
    with torch.no_grad(), _hooks(blocks, seen):
        model(ids[None], past_key_values=cache, use_cache=True)
    captured = []
    for block in blocks:
        block.rotary_emb = model.model.rotary_emb  # presses that rotate expect it there
        note = seen[block.layer_idx]
        before = note["before_rope"].view(len(ids), -1, block.head_dim).transpose(0, 1)
        captured.append(
            CapturedLayer(
                module=block,
                hidden=note["hidden"],
                keys=cache.layers[block.layer_idx].keys[0],
                values=cache.layers[block.layer_idx].values[0],
                queries=block.recorded_queries,
                queries_before_rope=before,
                attentions=note["attentions"],
                kwargs=note["kwargs"],
            )
        )
    return captured
