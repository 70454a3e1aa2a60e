"""Small models with random weights, one of each family that is tested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

LAYERS = 3
VOCABULARY = 97

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    # Larger than usual, so that attention is far from uniform and a wrong row is far from right.
    "initializer_range": 0.2,
}
_ALL_FULL = {"layer_types": ["full_attention"] * LAYERS}

FAMILIES: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": None}),
    "gemma": (GemmaConfig, GemmaForCausalLM, {}),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM, _ALL_FULL),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM, _ALL_FULL),
}


def tiny_model(
    family: str = "llama",
    attention: str = "sdpa",
    dtype: torch.dtype = torch.float32,
    seed: int = 7,
    **settings: Any,
) -> Any:
    """Ready to use; the same weights for the same seed."""
    config_class, model_class, special = FAMILIES[family]
    torch.manual_seed(seed)
    config = config_class(**(_SHAPE | special | settings))
    if attention == "sdpa" and not model_class._supports_sdpa:
        pytest.skip(f"this transformers has no sdpa for {family}")
    return model_class._from_config(config, attn_implementation=attention, dtype=dtype).eval()


def tokens(count: int, seed: int = 1, batch: int = 1) -> torch.Tensor:
    """[batch, count] token ids, none of them special."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, VOCABULARY, (batch, count), generator=generator)
