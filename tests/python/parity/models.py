"""Small models with random weights whose layers the comparisons run on."""

from __future__ import annotations

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SEED = 20261201
VOCABULARY = 1024
ROWS = 400  # tokens of the prefills of random models
SHAPES = {  # query heads, KV heads, head size
    "gqa": (8, 2, 32),
    "mha": (4, 4, 16),
    "mqa": (6, 1, 64),
}


def random_llama(q_heads: int, kv_heads: int, head_size: int) -> PreTrainedModel:
    """Two layers. Weights are wide, so that attention is peaked and scores lie well apart."""
    config = LlamaConfig(**_sizes(q_heads, kv_heads, head_size))
    torch.manual_seed(SEED)
    return LlamaForCausalLM(config).eval()


def random_qwen3() -> PreTrainedModel:
    """Queries and keys are normalised before they are rotated, with weights that are not all one."""
    config = Qwen3Config(**_sizes(8, 4, 32))
    torch.manual_seed(SEED)
    model = Qwen3ForCausalLM(config).eval()
    for layer in model.model.layers:
        for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
            torch.nn.init.uniform_(norm.weight, 0.5, 2.5)
    return model


def _sizes(q_heads: int, kv_heads: int, head_size: int) -> dict[str, object]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 96,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": q_heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_size,
        "max_position_embeddings": 2048,
        "initializer_range": 0.2,
    }


def random_ids(count: int) -> torch.Tensor:
    """No token twice: in the first layer its keys would have one norm, and tie."""
    return torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(SEED))[:count]
